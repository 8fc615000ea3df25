import { randomUUID } from "node:crypto";
import { sleep } from "@khala/server/blackboard";
import { describe, expect, test } from "vitest";
import { patientClock, testContext } from "../../../e2e/support/context.ts";
import { eventually } from "../../../e2e/support/eventually.ts";
import { kafkaHere, ownKafka, startKafka } from "../../../e2e/support/kafka.ts";
import { openClusterOffsets } from "./cluster_offsets.ts";
import { joinGroup } from "./group.ts";
import { openBoard } from "./open_board.ts";
import { artifact, openStage, task } from "./test_support.ts";

describe.runIf(kafkaHere())("a member of a group", () => {
  test("leaves in order at any moment of its join, alone and while others join", {
    timeout: 90_000,
  }, async () => {
    await using stage = await openStage({ partitions: 2 });
    const warnings: string[] = [];
    const context = await testContext({ clock: patientClock, onWarning: (line) => warnings.push(line) });
    const { kafka } = stage.settings;
    const offsets = await openClusterOffsets(context, kafka);
    const groupId = `${stage.names.routerGroup}-${randomUUID()}`;
    const join = () =>
      joinGroup(context, kafka, {
        groupId,
        offsets,
        topics: [stage.names.artifacts],
        readCommitted: true,
        sessionTimeoutMs: 6_000,
        batch: 10,
        onBatches() {},
        onFailure() {},
      });
    // From when its join has hardly begun to when its partitions are on their way to it.
    for (const ms of [0, 10, 25, 40, 60]) {
      const alone = await join();
      await sleep(context.clock, ms);
      await alone.leave();
      // The second is told of partitions while it says farewell.
      const members = await Promise.all([join(), join()]);
      await sleep(context.clock, ms);
      for (const member of members) await member.leave();
    }
    await offsets.stop();
    expect(warnings.filter((line) => line.includes("did not leave"))).toEqual([]);
  });
});

describe.runIf(ownKafka() !== undefined)("a board whose brokers are gone", () => {
  test("stops while they stay away, with work under way", { timeout: 120_000 }, async () => {
    await using broker = await startKafka();
    const context = await testContext();
    const prefix = `t${randomUUID().slice(0, 8)}.`;
    let ran = 0;
    const board = await openBoard(context, {
      agents: [{ agent: "reviewer", order: "key", strict: false }],
      route: (draft) => ({ tasks: [task({ artifacts: [draft] })], dead: [] }),
      routes: true,
      observer: { published() {}, routed() {}, settled: () => void ran++, repeated() {} },
      kafka: { bootstrap: broker.bootstrap, clientId: prefix },
      prefix,
      partitions: 2,
      retryDelaysMs: [1_000],
      drainMs: 1_000,
    });
    const work = board.consume({
      agent: "reviewer",
      order: "key",
      strict: false,
      concurrency: 10,
      away: false,
      begun: () => true,
      async gate() {},
      async handle() {
        return { kind: "done", outputs: [] };
      },
    });
    await board.publish([artifact()]);
    await eventually("it works", () => ran > 0);
    await broker.kill();
    const late = board.publish([artifact()]).then(
      () => "published",
      () => "refused",
    );
    await work.stop();
    await board.stop();
    expect(await late).toBe("refused");
  });
});
