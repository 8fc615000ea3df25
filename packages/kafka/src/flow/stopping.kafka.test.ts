import { randomUUID } from "node:crypto";
import { ownKafka, startKafka } from "@khala/testing/kafka/kafka";
import { testContext } from "@khala/testing/kit/context";
import { eventually } from "@khala/testing/kit/eventually";
import { describe, expect, test } from "vitest";
import { openBoard } from "../open_board.ts";
import { artifact, task } from "../test_support.ts";

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
