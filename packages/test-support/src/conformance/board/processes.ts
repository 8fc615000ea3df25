import { setImmediate } from "node:timers/promises";
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

const AGENTS = "backlog leaving joining stolen stolen_out revived apart beyond".split(" ");

/** The promises when processes join, leave and are given up. */
export function processPromises(open: OpenBoard): void {
  const at = stage(open, [...AGENTS.map((agent) => rules(agent)), rules("hurried", { strict: true })]);

  test("a worker that starts later runs what was published before", async () => {
    const { a, b, open } = at();
    const keys = range(1, 6).map(() => newName("k"));
    await a.publish(keys.flatMap((key) => numbered("backlog", key, 20)));
    const worker = new Worker("backlog");
    const late = await open();
    await using _ = start(worker, late, b);
    await worker.ran(120);
    for (const key of keys) expect(worker.payloads(key)).toEqual(range(1, 20));
    expect(worker.overlaps).toEqual([]);
  });

  test("a process that leaves during work loses nothing, repeats nothing and keeps the order", async () => {
    const { a, b, open, heard } = at();
    const leaving = await open();
    const worker = new Worker("leaving", async () => {
      await setImmediate();
      return done();
    });
    await using _ = start(worker, a, b);
    const left = start(worker, leaving);
    const keys = range(1, 10).map(() => newName("k"));
    const rows = keys.map((key) => numbered("leaving", key, 30));
    await a.publish(rows.flatMap((row) => row.slice(0, 15)));
    await eventually(() => expect(worker.runs.length).toBeGreaterThan(20));
    await left.stop();
    await leaving.stop();
    await b.publish(rows.flatMap((row) => row.slice(15)));
    await eventually(() => expect(heard.settledBy("leaving")).toHaveLength(300));
    await worker.ran(300);
    expect(worker.overlaps).toEqual([]);
    for (const key of keys) expect(worker.payloads(key)).toEqual(range(1, 30));
  });

  test("a process that joins during work keeps the order, also of strict retries", async () => {
    const { a, open, heard } = at();
    const strict = rules("hurried", { strict: true });
    const worker = new Worker(strict, async (task) => {
      await setImmediate();
      return Number(payloadOf(task)) % 10 === 0 && task.attempt < 3 ? retry(20) : done();
    });
    await using _ = start(worker, a);
    const keys = range(1, 6).map(() => newName("k"));
    await a.publish(keys.flatMap((key) => numbered("hurried", key, 20)));
    await eventually(() => expect(worker.runs.length).toBeGreaterThan(5));
    const [c, d] = [await open(), await open()];
    await using __ = start(worker, c, d);
    const expected = range(1, 20).flatMap((n) => (n % 10 === 0 ? [n, n, n] : [n]));
    await eventually(() => expect(heard.settledBy("hurried")).toHaveLength(6 * expected.length));
    expect(worker.overlaps).toEqual([]);
    for (const key of keys) expect(worker.payloads(key)).toEqual(expected);
  });

  test("an agent and its publishers may run in different processes", async () => {
    const { b, open, heard } = at();
    const publisher = await open();
    const consuming = await open();
    const worker = new Worker("apart", (task) =>
      done(makeTestArtifact({ to: "beyond", partition_key: task.key, payload: payloadOf(task)! })),
    );
    const beyond = new Worker("beyond");
    await using _ = start(worker, consuming);
    await using __ = start(beyond, b);
    await publisher.publish(numbered("apart", newName("k"), 10));
    await eventually(() => expect(heard.settledBy("beyond")).toHaveLength(10));
    expect(worker.payloads()).toEqual(range(1, 10));
    expect(beyond.payloads()).toEqual(range(1, 10));
  });

  test("a process that loses a task sees it aborted; another runs it, and it is settled once", async ({
    skip,
  }) => {
    const { under, b, open, heard } = at();
    skip(!under.usurp, "This driver cannot take work away at will.");
    const lost = await open();
    const output = (payload: string) => makeTestArtifact({ to: "stolen_out", payload });
    // With one slot, a consumer that still works on the lost task cannot take it again.
    const slow = new Worker("stolen", () => slow.released.then(() => done(output("thrown away"))), 1);
    await using started = start(slow, lost);
    const artifact = makeTestArtifact({ to: "stolen", partition_key: newName("k") });
    await b.publish([artifact]);
    await slow.ran(1);
    const quick = new Worker("stolen", () => done(output("kept")));
    const follower = new Worker("stolen_out");
    await using _ = start(quick, b);
    await using __ = start(follower, b);
    await under.usurp!(lost);
    await quick.ran(1);
    under.renew?.();
    expect(quick.runs[0]!.task).toMatchObject({ id: artifact.id, key: artifact.partition_key });
    await eventually(() => expect(slow.runs[0]!.signal.aborted).toBe(true));
    await follower.ran(1);
    slow.release();
    await started.stop();
    await b.publish([makeTestArtifact({ to: ["stolen", "stolen_out"], payload: "last" })]);
    await eventually(() => expect(heard.settledBy("stolen")).toHaveLength(2));
    const ends = heard.settledBy("stolen").filter(({ task }) => task.id === artifact.id);
    expect(ends.map(({ settlement }) => settlement.kind)).toEqual(["done"]);
    await follower.ran(3);
    expect(follower.payloads().toSorted()).toEqual(["kept", "kept", "last"]);
  });

  test("ignores a failure reported after the task was taken away", async ({ skip }) => {
    const { under, b, open, heard } = at();
    skip(!under.usurp, "This driver cannot take work away at will.");
    const lost = await open();
    const stubborn = new Worker("revived", () => stubborn.released.then(() => dead("too late")), 1);
    await using started = start(stubborn, lost);
    const key = newName("k");
    await b.publish(numbered("revived", key, 3));
    await stubborn.ran(1);
    const quick = new Worker("revived");
    await using _ = start(quick, b);
    await under.usurp!(lost);
    await eventually(() => expect(quick.payloads(key)).toEqual([1, 2, 3]));
    stubborn.release();
    await started.stop();
    await eventually(() => expect(heard.settledBy("revived")).toHaveLength(3));
    expect(heard.settledBy("revived").map(({ settlement }) => settlement.kind)).toEqual([
      "done",
      "done",
      "done",
    ]);
    expect((await b.deadLetters("revived", { orgs: ["acme"], limit: 10 })).deadLetters).toEqual([]);
  });
}
