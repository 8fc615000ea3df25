import { partitionOf, recordKey } from "@khala/contracts";
import {
  eventually,
  Heard,
  makeTestArtifact,
  newName,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { done, start, Worker } from "@khala/test-support/conformance/board/worker";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { kafkaBoard } from "@khala/test-support/kafka/kafka_board";
import { describe, expect, test } from "vitest";

const PARTITIONS = 2;
const [HEAVY, LIGHT] = [0, 1];
const PLACES = 4;

/** Artifacts with keys of their own, all of one partition. */
function ofPartition(partition: number, count: number) {
  const artifacts = [];
  while (artifacts.length < count) {
    const partition_key = newName("k");
    if (partitionOf(recordKey("acme", partition_key), PARTITIONS) === partition)
      artifacts.push(makeTestArtifact({ to: "agent", partition_key }));
  }
  return artifacts;
}

describe.skipIf(!kafkaHere())("a heavy partition", { timeout: 120_000 }, () => {
  test("gets fewer slots while others need some, and all of them later; running tasks are settled", async () => {
    await using under = await kafkaBoard({ partitions: PARTITIONS });
    const heard = new Heard();
    const agents = [rules("agent")];
    const board = await under.open({ agents, route: routeByTags, observer: heard });
    /** What runs, by partition: each ends when it is called. */
    const running = new Map<number, (() => void)[]>([HEAVY, LIGHT].map((partition) => [partition, []]));
    let isOver = false;
    const worker = new Worker(
      "agent",
      ({ key }) => {
        const output = makeTestArtifact();
        if (isOver) return done(output);
        const ending = Promise.withResolvers<void>();
        running.get(partitionOf(recordKey("acme", key), PARTITIONS))!.push(ending.resolve);
        return ending.promise.then(() => done(output));
      },
      PLACES,
    );
    await using stack = new AsyncDisposableStack();
    stack.use(start(worker, board));
    const end = (partition: number) => running.get(partition)!.shift()?.();
    // Nothing waits for a place when it is stopped, however the test ends.
    stack.defer(() => {
      isOver = true;
      for (const ends of running.values()) for (const each of ends) each();
    });
    const have = (heavy: number, light: number) =>
      eventually(() => expect([...running.values()].map(({ length }) => length)).toEqual([heavy, light]));

    await board.publish(ofPartition(HEAVY, 240));
    await have(PLACES, 0);
    await board.publish(ofPartition(LIGHT, 8));
    // They are on their way: as soon as they are here, a place that becomes free is theirs.
    let looked = 0;
    await eventually(() => {
      // Seldom enough that there are heavy ones to end for as long as it may take.
      if (running.get(HEAVY)!.length === PLACES && ++looked % 20 === 0) end(HEAVY);
      expect(running.get(LIGHT)!.length).toBeGreaterThan(0);
    });
    while (running.get(HEAVY)!.length > PLACES / 2) {
      end(HEAVY);
      const left = running.get(HEAVY)!.length;
      await have(left, PLACES - left);
    }
    for (let round = 0; round < 3; round++) {
      end(HEAVY);
      await have(2, 2);
      end(LIGHT);
      await have(2, 2);
    }
    // Those that ended are settled with what they put out, though their partition has less than it wants.
    await eventually(() => expect(heard.settledBy("agent")).toHaveLength(worker.runs.length - PLACES));
    for (const { settlement } of heard.settledBy("agent")) {
      expect(settlement).toMatchObject({ kind: "done", outputs: [{ type: "Draft" }] });
      if (settlement.kind === "done")
        expect(await board.get("acme", settlement.outputs[0]!.id)).toBeDefined();
    }

    while (
      worker.runs.filter(({ task }) => partitionOf(recordKey("acme", task.key), PARTITIONS) === LIGHT)
        .length < 8
    ) {
      end(LIGHT);
      await eventually(() => expect(running.get(HEAVY)!.length + running.get(LIGHT)!.length).toBe(PLACES));
    }
    while (running.get(LIGHT)!.length > 0) end(LIGHT);
    await have(PLACES, 0);
    expect(worker.mostAtOnce).toBe(PLACES);
  });
});
