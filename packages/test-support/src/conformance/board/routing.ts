import { expect, test } from "vitest";
import {
  caughtUp,
  eventually,
  makeTestArtifact,
  makeTestTask,
  newId,
  newName,
  numbered,
  type OpenBoard,
  range,
  rules,
  stage,
} from "./support.ts";
import { done, payloadOf, start, Worker } from "./worker.ts";

const AGENTS =
  "first second third broken beside elsewhere shared opener closer twin few gated free pushed pulled together versions";

/** The promises of routing, from an artifact to its agents and their outputs. */
export function routingPromises(open: OpenBoard): void {
  const at = stage(
    open,
    AGENTS.split(" ").map((agent) => rules(agent)),
  );

  test("makes one task for each agent that an artifact matches", async () => {
    const { a, b, heard } = at();
    const workers = ["first", "second", "third"].map((agent) => new Worker(agent));
    await using _ = start(workers[0]!, a);
    await using __ = start(workers[1]!, a);
    await using ___ = start(workers[2]!, b);
    const artifact = makeTestArtifact({
      to: ["first", "second", "third"],
      payload: { of: "all" },
      correlation_id: newName("c"),
    });
    await a.publish([artifact]);
    for (const worker of workers) await worker.ran(1);
    for (const { agent, runs } of workers) expect(runs[0]!.task).toMatchObject(makeTestTask(agent, artifact));
    await eventually(() => {
      const routed = heard.routings.filter((each) => each.artifact.id === artifact.id);
      expect(routed.map(({ tasks }) => tasks.map(({ agent }) => agent))).toEqual([
        ["first", "second", "third"],
      ]);
      const settled = heard.settlements.filter(({ task }) => task.id === artifact.id);
      expect(settled.map(({ task }) => task.agent).sort()).toEqual(["first", "second", "third"]);
      for (const { settlement, place } of settled) {
        expect(settlement).toEqual(done());
        const anywhere = {
          topic: expect.any(String),
          partition: expect.any(Number),
          offset: expect.any(String),
        };
        expect(place).toMatchObject(anywhere);
      }
    });
  });

  test("routes a higher version as new work", async () => {
    const { a } = at();
    const worker = new Worker("versions");
    await using _ = start(worker, a);
    const first = makeTestArtifact({ to: "versions", partition_key: newName("k"), payload: 1 });
    await a.publish([first]);
    await a.publish([{ ...first, version: 2, payload: 2 }]);
    await worker.ran(2);
    expect(worker.payloads()).toEqual([1, 2]);
    expect(worker.attempts()).toEqual([1, 1]);
  });

  test("makes a dead letter for an agent whose matching throws, and tasks for the others", async () => {
    const { a, b } = at();
    const worker = new Worker("beside");
    await using _ = start(worker, a);
    const artifact = makeTestArtifact({ to: "beside", breaks: "broken", payload: "odd" });
    await a.publish([artifact]);
    await worker.ran(1);
    await eventually(async () => {
      const { deadLetters } = await b.deadLetters("broken", { orgs: ["acme"], limit: 10 });
      expect(deadLetters).toHaveLength(1);
      const [letter] = deadLetters;
      expect(letter).toMatchObject({ agent: "broken", attempts: 0, failure: { message: "where() threw" } });
      expect(letter!.task).toMatchObject({ agent: "broken", artifacts: [artifact] });
      expect((await b.deadLettersById("broken", ["acme"], [letter!.id]))[0]).toEqual(letter);
    });
  });

  test("handles every task once, however many consumers there are", async () => {
    const { a, b, open, heard } = at();
    const c = await open();
    const worker = new Worker("shared", undefined, 5);
    await using _ = start(worker, a, a, b, c, c);
    const artifacts = range(1, 300).map((payload) => makeTestArtifact({ to: "shared", payload }));
    for (const i of range(0, 9)) await [a, b, c][i % 3]!.publish(artifacts.slice(i * 30, (i + 1) * 30));
    await eventually(() => expect(heard.settledBy("shared")).toHaveLength(300));
    await worker.ran(300);
    expect(new Set(worker.payloads()).size).toBe(300);
    expect(worker.runs.filter(({ signal }) => signal.aborted)).toEqual([]);
  });

  test("publishes and routes the outputs of a task once, together with its settlement", async () => {
    const { a, b, heard } = at();
    const outputs = (task: { id: string; key: string }) =>
      ["x", "y"].map((payload) =>
        makeTestArtifact({
          id: newId(),
          type: "Output",
          to: payload === "x" ? ["closer", "twin"] : "closer",
          payload: `${payload} of ${task.id}`,
          correlation_id: task.key,
          produced_by: "agent:opener",
          depth: 1,
        }),
      );
    const opener = new Worker("opener", (task) => done(...outputs(task)));
    const [closer, twin] = [new Worker("closer"), new Worker("twin")];
    await using _ = start(opener, a, b);
    await using __ = start(closer, a, b);
    await using ___ = start(twin, b);
    const correlation_id = newName("c");
    const artifacts = range(1, 40).map(() => makeTestArtifact({ to: "opener", correlation_id }));
    await a.publish(artifacts);
    await closer.ran(80);
    await twin.ran(40);
    await eventually(() => expect(heard.settledBy("closer")).toHaveLength(80));
    // Outputs may be visible before their processes know of the commit.
    await eventually(() => expect(heard.settledBy("opener")).toHaveLength(40));
    const settled = heard.settledBy("opener");
    expect(settled.map(({ task }) => task.id).sort()).toEqual(artifacts.map(({ id }) => id).sort());
    const made = settled.flatMap(({ settlement }) => (settlement.kind === "done" ? settlement.outputs : []));
    expect(closer.payloads().sort()).toEqual(made.map(({ payload }) => payload).sort());
    await eventually(() => {
      const published = heard.publications.filter(({ produced_by }) => produced_by === "agent:opener");
      expect(published.map(({ id }) => id).sort()).toEqual(made.map(({ id }) => id).sort());
    });
    for (const output of made.slice(0, 10))
      for (const board of [a, b])
        await eventually(async () => expect(await board.get(output.org_id, output.id)).toEqual(output));
  });

  test("runs as many tasks at a time as a consumer has slots, and no more", async () => {
    const { a } = at();
    const worker = new Worker("few", () => worker.released.then(() => done()), 3);
    await using _ = start(worker, a);
    await a.publish(range(1, 30).map(() => makeTestArtifact({ to: "few" })));
    await eventually(() => expect(worker.mostAtOnce).toBe(3));
    worker.release();
    await worker.ran(30);
    expect(worker.mostAtOnce).toBe(3);
  });

  test("gives nothing to an agent whose gate is closed, and runs the others", async () => {
    const { a } = at();
    const [gated, free] = [new Worker("gated"), new Worker("free")];
    gated.closeGate();
    await using _ = start(gated, a);
    await using __ = start(free, a);
    const key = newName("k");
    await a.publish(numbered(["gated", "free"], key, 10));
    await free.ran(10);
    await eventually(() => expect(gated.gates).toBeGreaterThan(0));
    expect(gated.runs).toEqual([]);
    gated.openGate();
    await gated.ran(10);
    expect(gated.payloads(key)).toEqual(range(1, 10));
  });

  test("gives an enqueued task to its agent unchanged, without routing", async () => {
    const { a, b, heard } = at();
    const [pushed, pulled] = [new Worker("pushed"), new Worker("pulled")];
    await using _ = start(pushed, b);
    await using __ = start(pulled, a);
    const [one, ...more] = range(1, 3).map((payload) => makeTestArtifact({ payload }));
    const joined = makeTestTask("pushed", one!, {
      id: newId(),
      artifacts: [one!, ...more],
      key: newName("k"),
      replay_id: newId(),
      approved_by: "user:ann",
    });
    const other = makeTestTask("pulled", one!);
    await a.enqueue([joined, other]);
    await pushed.ran(1);
    await pulled.ran(1);
    expect(pushed.runs[0]!.task).toEqual(joined);
    expect(pulled.runs[0]!.task).toEqual(other);
    expect(heard.routings.some(({ artifact }) => artifact.id === one!.id)).toBe(false);
    await a.enqueue([]);
  });

  test("enqueues all tasks of a call or none", async ({ skip }) => {
    const { under, a } = at();
    skip(under.maxBytes === undefined, "This driver refuses no task.");
    const key = newName("k");
    const tasks = numbered([], key, 3).map((each) => makeTestTask("together", each));
    // A task may be larger than an artifact, as it may hold several.
    const large = makeTestArtifact({ payload: "x".repeat(8 * under.maxBytes!), partition_key: key });
    await expect(a.enqueue([...tasks, makeTestTask("together", large)])).rejects.toThrow();
    await caughtUp(at(), [a], key);
    const worker = new Worker("together");
    await using _ = start(worker, a);
    await a.enqueue([makeTestTask("together", makeTestArtifact({ partition_key: key, payload: "last" }))]);
    await worker.ran(1);
    expect(worker.runs.map(({ task }) => payloadOf(task))).toEqual(["last"]);
  });
}
