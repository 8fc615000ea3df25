import { expect, test } from "vitest";
import type { Task } from "../../../../server/src/blackboard/model/task.ts";
import {
  eventually,
  makeTestArtifact,
  newName,
  numbered,
  type OpenBoard,
  range,
  rules,
  stage,
} from "./support.ts";
import { dead, done, payloadOf, retry, start, Worker } from "./worker.ts";

const STRICT = ["parking", "moved", "buried", "single"].map((agent) => rules(agent, { strict: true }));
const LOOSE = ["passing", "patient", "mixed", "late", "outputs"].map((agent) => rules(agent));
const LONG = 3_600_000;

/** The promises of retries. */
export function retryPromises(open: OpenBoard): void {
  const at = stage(open, [...STRICT, ...LOOSE, rules("any", { order: "none" })]);

  test("strict: keeps the order of a key through three failures, and runs other keys meanwhile", async () => {
    const { a, heard } = at();
    const [failing, fine] = [newName("k"), newName("k")];
    const othersDone = () => eventually(() => expect(worker.payloads(fine)).toHaveLength(8));
    const worker = new Worker(STRICT[0]!, async (task: Task) => {
      if (task.key === fine || payloadOf(task) !== 2) return done();
      // The second attempt ends only after all tasks of the other key, so that those cannot have waited for it.
      if (task.attempt === 2) await othersDone();
      return task.attempt <= 3 ? retry(20) : done();
    });
    await using _ = start(worker, a);
    await a.publish([...numbered("parking", failing, 5), ...numbered("parking", fine, 8)]);
    await worker.ran(16);
    expect(worker.payloads(failing)).toEqual([1, 2, 2, 2, 2, 3, 4, 5]);
    expect(worker.attempts(failing)).toEqual([1, 1, 2, 3, 4, 1, 1, 1]);
    expect(worker.payloads(fine)).toEqual(range(1, 8));
    expect(worker.overlaps).toEqual([]);
    await eventually(() => {
      const kinds = heard.settledBy("parking").filter(({ task }) => task.key === failing);
      expect(kinds.map(({ settlement }) => settlement.kind).filter((kind) => kind === "retry")).toHaveLength(
        3,
      );
      expect(kinds).toHaveLength(8);
    });
  });

  test("strict: tasks wait behind a failed one also after the process changes", async () => {
    const { a, b } = at();
    const key = newName("k");
    const first = new Worker(STRICT[1]!, (task) => (payloadOf(task) === 1 ? retry(300) : done()));
    const started = start(first, a);
    await a.publish(numbered("moved", key, 4));
    await first.ran(1);
    await started.stop();
    const attempts = first.runs.length;
    const second = new Worker(STRICT[1]!, (task) =>
      payloadOf(task) === 3 && task.attempt === 1 ? retry(20) : done(),
    );
    await using _ = start(second, b);
    await second.ran(5);
    expect(second.payloads(key)).toEqual([1, 2, 3, 3, 4]);
    expect(second.attempts(key)).toEqual([attempts + 1, 1, 1, 2, 1]);
  });

  test("strict: a dead task lets the later tasks of its key run", async () => {
    const { a, b } = at();
    const key = newName("k");
    const worker = new Worker(STRICT[2]!, (task) => {
      if (payloadOf(task) !== 1) return done();
      return task.attempt < 3 ? retry(20) : dead();
    });
    await using _ = start(worker, a, b);
    await a.publish(numbered("buried", key, 4));
    await worker.ran(6);
    expect(worker.payloads(key)).toEqual([1, 1, 1, 2, 3, 4]);
  });

  test("strict: a task that waits for its retry takes no slot from other keys", async () => {
    const { a } = at();
    const [failing, fine] = [newName("k"), newName("k")];
    const worker = new Worker(STRICT[3]!, (task) => (task.key === failing ? retry(LONG) : done()), 1);
    await using _ = start(worker, a);
    await a.publish(numbered("single", failing, 3));
    await worker.ran(1);
    await a.publish(numbered("single", fine, 5));
    await worker.ran(6);
    expect(worker.payloads(fine)).toEqual(range(1, 5));
  });

  test("not strict: the later tasks of a key overtake one that waits for its retry, in their order", async () => {
    const { under, a, b, heard } = at();
    const key = newName("k");
    const worker = new Worker("passing", (task) =>
      payloadOf(task) === 2 && task.attempt === 1 ? retry(LONG) : done(),
    );
    await using _ = start(worker, a, b);
    await a.publish(numbered("passing", key, 6));
    await worker.ran(6);
    expect(worker.payloads(key)).toEqual(range(1, 6));
    expect(worker.overlaps).toEqual([]);
    if (!under.jump) return;
    await eventually(() => expect(heard.settledBy("passing")).toHaveLength(6));
    await under.jump(LONG);
    await worker.ran(7);
    expect(worker.payloads(key)).toEqual([1, 2, 3, 4, 5, 6, 2]);
  });

  test("runs a retry after its delay, as the next attempt", async () => {
    const { a, b, heard } = at();
    const delays = [150, 400, 50];
    const worker = new Worker("patient", ({ attempt }) => {
      const delay = delays[attempt - 1];
      return delay === undefined ? done() : retry(delay, `failure ${attempt}`);
    });
    await using _ = start(worker, a, b);
    const artifact = makeTestArtifact({ to: "patient", payload: { kept: true } });
    await a.publish([artifact]);
    await worker.ran(4);
    expect(worker.attempts()).toEqual([1, 2, 3, 4]);
    for (const { task } of worker.runs) {
      expect(task.artifacts).toEqual([artifact]);
      expect(task.id).toBe(artifact.id);
    }
    // The clocks of two programs may differ by a rounded fraction of a millisecond.
    for (const [i, delay] of delays.entries())
      expect(worker.runs[i + 1]!.startedAt - worker.runs[i]!.endedAt!).toBeGreaterThan(delay - 5);
    await eventually(() => {
      const settled = heard.settledBy("patient").map(({ settlement }) => settlement);
      expect(settled.map((each) => each.kind)).toEqual(["retry", "retry", "retry", "done"]);
      expect(settled.map((each) => (each.kind === "done" ? "" : each.failure.message))).toEqual([
        "failure 1",
        "failure 2",
        "failure 3",
        "",
      ]);
    });
  });

  test("a long delay does not hold up a shorter one, whichever began first", async () => {
    const { a, b } = at();
    const delays = [LONG, 30, 60_000, 300, LONG, 30, 1_200];
    const short = delays.flatMap((delay, i) => (delay < 60_000 ? [i + 1] : []));
    const worker = new Worker("mixed", (task) =>
      task.attempt === 1 ? retry(delays[Number(payloadOf(task)) - 1]!) : done(),
    );
    await using _ = start(worker, a, b);
    await a.publish(numbered("mixed", newName("k"), delays.length));
    // A run may come twice, so runs are not counted.
    const second = () =>
      worker.runs.filter(({ task }) => task.attempt === 2).map(({ task }) => payloadOf(task));
    await eventually(() => expect([...new Set(second())].toSorted()).toEqual(short));
  });

  test("retries failures of an agent without order until every task is done", async () => {
    const { a, b } = at();
    const worker = new Worker(rules("any", { order: "none" }), (task) =>
      task.attempt < (Number(payloadOf(task)) % 3) + 1 ? retry(20) : done(),
    );
    await using _ = start(worker, a, b);
    await a.publish(numbered("any", newName("k"), 30));
    await worker.ran(60);
    const last = worker.runs.filter(({ settlement }) => settlement?.kind === "done");
    expect(last.map(({ task }) => Number(payloadOf(task))).toSorted((x, y) => x - y)).toEqual(range(1, 30));
  });

  test("runs a retry with a delay of an hour after an hour, and other tasks before", async ({ skip }) => {
    const { under, a, heard } = at();
    skip(!under.jump, "This driver's time cannot be set.");
    const worker = new Worker("late", ({ attempt, key }) =>
      attempt === 1 && key.startsWith("slow") ? retry(LONG) : done(),
    );
    await using _ = start(worker, a);
    await a.publish(numbered("late", newName("slow"), 1));
    // The jump does not change tasks that are not stored yet.
    await eventually(() => expect(heard.settledBy("late")).toHaveLength(1));
    await under.jump!(LONG - 60_000);
    await a.publish(numbered("late", newName("quick"), 1));
    await worker.ran(2);
    await under.jump!(61_000);
    await worker.ran(3);
    expect(worker.attempts()).toEqual([1, 1, 2]);
  });

  test("publishes the outputs of the successful attempt once, and nothing of failed ones", async () => {
    const { a, b, heard } = at();
    const made = range(1, 3).map((n) => makeTestArtifact({ type: "Made", payload: n }));
    const worker = new Worker("outputs", ({ attempt }) => (attempt < 3 ? retry(0) : done(...made)));
    await using _ = start(worker, a, b);
    await a.publish([makeTestArtifact({ to: "outputs" })]);
    await worker.ran(3);
    for (const each of made)
      await eventually(() =>
        expect(heard.routings.filter(({ artifact }) => artifact.id === each.id)).toHaveLength(1),
      );
  });
}
