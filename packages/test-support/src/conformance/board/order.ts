import { setImmediate } from "node:timers/promises";
import { partitionOf, recordKey } from "@khala/contracts";
import { expect, test } from "vitest";
import type { Artifact } from "../../../../server/src/blackboard/model/artifact.ts";
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
import { done, payloadOf, start, Worker } from "./worker.ts";

const NONE = rules("none", { order: "none" });
const PARTITION = rules("partition", { order: "partition" });
const BY_KEY = ["many", "held", "pair", "batch", "follower", "other"].map((agent) => rules(agent));

/** The promises of the order in which an agent's tasks run. */
export function orderPromises(open: OpenBoard): void {
  const at = stage(open, [NONE, PARTITION, rules("strict", { strict: true }), ...BY_KEY]);

  /** A number of event loop turns that differs from task to task. */
  const unevenly = async (payload: unknown) => {
    for (let turns = (Number(payload) * 7) % 5; turns > 0; turns--) await setImmediate();
    return done();
  };

  test("runs 32 keys with 20 tasks each in order and once, in five processes with 20 slots", async () => {
    const { a, b, open, heard } = at();
    const boards = [a, b, await open(), await open(), await open()];
    const worker = new Worker("many", (task) => unevenly(payloadOf(task)), 20);
    await using _ = start(worker, ...boards);
    const keys = range(1, 32).map(() => newName("k"));
    const rows = keys.map((key) => numbered("many", key, 20));
    for (const column of range(0, 9))
      await boards[column % 5]!.publish(rows.flatMap((row) => row.slice(2 * column, 2 * column + 2)));
    await eventually(() => expect(heard.settledBy("many").length).toBeGreaterThanOrEqual(640));
    await worker.ran(640);
    expect(worker.overlaps).toEqual([]);
    for (const key of keys) expect(worker.payloads(key)).toEqual(range(1, 20));
    expect(new Set(heard.settledBy("many").map(({ task }) => task.id)).size).toBe(640);
    expect(worker.mostAtOnce).toBeGreaterThan(1);
    for (const board of boards.slice(2)) await board.stop();
  });

  test("runs other keys while a task is under way, and the later tasks of its key after it", async () => {
    const { a } = at();
    const [slow, quick] = [newName("k"), newName("k")];
    const worker = new Worker("held", (task) =>
      task.key === slow && payloadOf(task) === 1 ? worker.released.then(() => done()) : done(),
    );
    // One process: with two, keys that move to the second start only after the held task ends.
    await using _ = start(worker, a);
    const rows = [numbered("held", slow, 5), numbered("held", quick, 20)];
    await a.publish(rows.flat());
    await eventually(() => expect(worker.payloads(quick)).toEqual(range(1, 20)));
    await eventually(() => expect(worker.payloads(slow)).toEqual([1]));
    worker.release();
    await worker.ran(25);
    expect(worker.payloads(slow)).toEqual(range(1, 5));
    expect(worker.overlaps).toEqual([]);
  });

  test("runs the tasks of one key in parallel for an agent without order", async () => {
    const { a } = at();
    const worker = new Worker(NONE, () => worker.released.then(() => done()), 5);
    await using _ = start(worker, a);
    await a.publish(numbered("none", newName("k"), 20));
    await eventually(() => expect(worker.mostAtOnce).toBe(5));
    worker.release();
    await worker.ran(20);
    expect(worker.payloads().toSorted((x, y) => Number(x) - Number(y))).toEqual(range(1, 20));
  });

  test("runs the tasks of a partition one at a time and in order, for an agent ordered by partition", async () => {
    const { under, a, b } = at();
    const worker = new Worker(PARTITION, (task) => unevenly(payloadOf(task)));
    await using _ = start(worker, a, b);
    /** Two partitions, with four keys each. */
    const sides = [0, 1].map((partition) => {
      const keys: string[] = [];
      while (keys.length < 4) {
        const key = newName("k");
        if (partitionOf(recordKey("acme", key), under.partitions) === partition) keys.push(key);
      }
      return keys;
    });
    const artifacts = range(1, 40).flatMap((payload) =>
      sides.map((keys) => makeTestArtifact({ to: "partition", partition_key: keys[payload % 4]!, payload })),
    );
    for (const i of range(0, 9)) await (i % 2 ? a : b).publish(artifacts.slice(8 * i, 8 * i + 8));
    await worker.ran(80);
    for (const keys of sides) {
      const runs = worker.runs.filter(({ task }) => keys.includes(task.key));
      expect(runs.map(({ task }) => payloadOf(task))).toEqual(range(1, 40));
      for (const [i, { startedAt }] of runs.slice(1).entries())
        expect(startedAt).toBeGreaterThanOrEqual(runs[i]!.endedAt!);
    }
  });

  test("keeps the order in which several processes publish on one key", async () => {
    const { a, b, open } = at();
    const processes = [a, await open(), b];
    const worker = new Worker("pair", (task) => unevenly(payloadOf(task)));
    await using _ = start(worker, a, b);
    const key = newName("k");
    for (const each of numbered("pair", key, 40)) await processes[Number(each.payload) % 3]!.publish([each]);
    await worker.ran(40);
    expect(worker.payloads(key)).toEqual(range(1, 40));
    expect(worker.overlaps).toEqual([]);
  });

  test("keeps the order of the outputs of a task, for each agent by itself", async () => {
    const { a, b } = at();
    const key = newName("k");
    const batch = new Worker("batch", (task) => {
      const first = 10 * Number(payloadOf(task));
      const output = (payload: number): Artifact =>
        makeTestArtifact({
          to: ["follower", "other"],
          partition_key: key,
          payload,
          produced_by: "agent:batch",
        });
      return done(...range(first, first + 9).map(output));
    });
    const follower = new Worker("follower", () => follower.released.then(() => done()));
    const other = new Worker("other");
    await using _ = start(batch, a, b);
    await using __ = start(follower, b);
    await using ___ = start(other, b);
    await a.publish(numbered("batch", key, 6));
    await other.ran(60);
    expect(other.payloads()).toEqual(range(10, 69));
    await eventually(() => expect(follower.payloads()).toEqual([10]));
    follower.release();
    await follower.ran(60);
    expect(follower.payloads()).toEqual(range(10, 69));
  });

  test("runs the tasks of a strict agent that never fails in order", async () => {
    const { a, b } = at();
    const worker = new Worker(rules("strict", { strict: true }), (task) => unevenly(payloadOf(task)));
    await using _ = start(worker, a, b);
    const keys = range(1, 10).map(() => newName("k"));
    await b.publish(keys.flatMap((key) => numbered("strict", key, 10)));
    await worker.ran(100);
    expect(worker.overlaps).toEqual([]);
    for (const key of keys) expect(worker.payloads(key)).toEqual(range(1, 10));
  });
}
