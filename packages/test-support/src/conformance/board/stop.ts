import { expect, test } from "vitest";
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

const AGENTS = "finishing product returned gated idle halted postponed twice remote".split(" ");

/** The promises of stopping. */
export function stopPromises(open: OpenBoard): void {
  const at = stage(
    open,
    AGENTS.map((agent) => rules(agent)),
  );

  test("stopping a consumer waits for its running tasks, publishes their outputs, and releases the rest", async () => {
    const { a, b, heard } = at();
    const worker = new Worker(
      "finishing",
      async (task) => {
        await worker.released;
        return done(makeTestArtifact({ to: "product", payload: payloadOf(task)! }));
      },
      3,
    );
    await using first = start(worker, a);
    const product = new Worker("product");
    await using _ = start(product, b);
    await a.publish(range(1, 20).map((payload) => makeTestArtifact({ to: "finishing", payload })));
    await eventually(() => expect(worker.mostAtOnce).toBe(3));
    let stopped = false;
    const stopping = first.stop().then(() => {
      stopped = true;
    });
    expect(heard.settledBy("finishing")).toEqual([]);
    expect(stopped).toBe(false);
    worker.release();
    await stopping;
    expect(worker.runs.length).toBeLessThan(20);
    await eventually(() => expect(heard.settledBy("finishing")).toHaveLength(worker.runs.length));
    expect(worker.runs.every(({ signal }) => !signal.aborted)).toBe(true);
    const rest = new Worker("finishing", (task) =>
      done(makeTestArtifact({ to: "product", payload: payloadOf(task)! })),
    );
    await using __ = start(rest, b);
    await product.ran(20);
    expect(product.payloads().toSorted((x, y) => Number(x) - Number(y))).toEqual(range(1, 20));
    expect(worker.runs.length + rest.runs.length).toBe(20);
    expect(new Set([...worker.payloads(), ...rest.payloads()]).size).toBe(20);
  });

  test("stopping a consumer does not wait for remote work, and releases it without an attempt", async () => {
    const { a, b, heard } = at();
    const remote = new Worker("remote", () => remote.released.then(() => dead("thrown away")), 5, true);
    await using started = start(remote, a);
    await a.publish(numbered("remote", newName("k"), 2));
    await remote.ran(1);
    await started.stop();
    expect(remote.runs[0]!.signal.aborted).toBe(true);
    const next = new Worker("remote");
    await using _ = start(next, b);
    await next.ran(2);
    expect(next.attempts()).toEqual([1, 1]);
    remote.release();
    await eventually(() => expect(heard.settledBy("remote")).toHaveLength(2));
    expect(heard.settledBy("remote").map(({ settlement }) => settlement.kind)).toEqual(["done", "done"]);
  });

  test("a stopped consumer gets no more tasks, and another continues in order", async () => {
    const { a, b } = at();
    const key = newName("k");
    const [before, after] = [new Worker("returned"), new Worker("returned")];
    await using first = start(before, a);
    const artifacts = numbered("returned", key, 20);
    await a.publish(artifacts.slice(0, 10));
    await before.ran(10);
    await first.stop();
    await a.publish(artifacts.slice(10));
    await using _ = start(after, b);
    await after.ran(10);
    expect(before.payloads(key)).toEqual(range(1, 10));
    expect(after.payloads(key)).toEqual(range(11, 20));
  });

  test("a consumer with a closed gate can be stopped", async () => {
    const { a } = at();
    const worker = new Worker("gated");
    worker.closeGate();
    await using started = start(worker, a);
    await a.publish(numbered("gated", newName("k"), 3));
    await eventually(() => expect(worker.gates).toBeGreaterThan(0));
    await started.stop();
    expect(worker.runs).toEqual([]);
    const next = new Worker("gated");
    await using _ = start(next, a);
    await next.ran(3);
  });

  test("an idle consumer can be stopped, immediately and twice", async () => {
    const { a } = at();
    const idle = start(new Worker("idle"), a);
    await Promise.all([idle.stop(), idle.stop()]);
    await idle.stop();
    const worker = new Worker("idle");
    await using _ = start(worker, a);
    await a.publish([makeTestArtifact({ to: "idle" })]);
    await worker.ran(1);
  });

  test("a retry of a stopped process runs in another, after its delay", async () => {
    const { a, b } = at();
    const first = new Worker("postponed", () => retry(700, "first"));
    await using started = start(first, a);
    await a.publish([makeTestArtifact({ to: "postponed" })]);
    await first.ran(1);
    await started.stop();
    const { endedAt, task } = first.runs.at(-1)!;
    const second = new Worker("postponed");
    await using _ = start(second, b);
    await second.ran(1);
    expect(second.runs[0]!.task).toMatchObject({ id: task.id, attempt: task.attempt + 1 });
    expect(second.runs[0]!.startedAt - endedAt!).toBeGreaterThan(695);
  });

  test("a board can be stopped twice, and another continues its work", async () => {
    const { b, open } = at();
    const c = await open();
    const worker = new Worker("twice");
    await using first = start(worker, c);
    await c.publish(numbered("twice", newName("k"), 5));
    await worker.ran(5);
    await first.stop();
    await Promise.all([c.stop(), c.stop()]);
    await c.stop();
    await using _ = start(worker, b);
    await b.publish(numbered("twice", newName("k"), 5));
    await worker.ran(10);
  });

  test("stopping a board stops its consumers, and another runs the tasks not started", async () => {
    const { b, open } = at();
    const c = await open();
    const worker = new Worker("halted", () => worker.released.then(() => done()), 2);
    c.consume(worker);
    await b.publish(range(1, 10).map((payload) => makeTestArtifact({ to: "halted", payload })));
    await eventually(() => expect(worker.mostAtOnce).toBe(2));
    const stopping = c.stop();
    worker.release();
    await stopping;
    const begun = worker.runs.length;
    expect(begun).toBeLessThan(10);
    const rest = new Worker("halted");
    await using _ = start(rest, b);
    await rest.ran(10 - begun);
    expect(new Set([...worker.payloads(), ...rest.payloads()]).size).toBe(10);
    expect(worker.runs).toHaveLength(begun);
  });
}
