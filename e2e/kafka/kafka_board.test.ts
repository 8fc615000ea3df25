import { randomUUID } from "node:crypto";
import { boardSuite } from "@khala/test-support/conformance/board/board";
import {
  eventually,
  Heard,
  makeTestArtifact,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { start, Worker } from "@khala/test-support/conformance/board/worker";
import { kafkaHere, sharedKafka } from "@khala/test-support/kafka/kafka";
import { kafkaBoardOfSuite } from "@khala/test-support/kafka/kafka_board";
import { testContext } from "@khala/test-support/kit/context";
import { describe, expect, test, vi } from "vitest";
import { openKafkaBoard } from "../../packages/kafka/src/index.ts";

// Its tests mostly wait for groups to form.
vi.setConfig({ maxConcurrency: 12 });

describe.skipIf(!kafkaHere())("Kafka", () => {
  boardSuite("Kafka", () => kafkaBoardOfSuite({ transactions: true }), { concurrent: true });

  test.each([
    { transactions: true, acks: "all", idempotence: true },
    { transactions: false, acks: "1", idempotence: false },
  ] as const)("a board opens with an operator's settings: %o", async (given) => {
    const heard = new Heard();
    const prefix = `t${randomUUID().slice(0, 8)}.`;
    const board = await openKafkaBoard(await testContext(), {
      agents: [rules("agent")],
      route: routeByTags,
      observer: heard,
      bootstrap: await sharedKafka(),
      clientId: prefix,
      transactionalId: prefix,
      prefix,
      partitions: 2,
      replication: -1,
      lingerMs: 1,
      batchBytes: 65_536,
      readCommitted: true,
      window: 100,
      retentionMs: 3_600_000,
      ...given,
    });
    const worker = new Worker("agent");
    const started = start(worker, board);
    await board.publish([makeTestArtifact({ to: "agent" })]);
    await eventually(() => expect(heard.settledBy("agent")).toHaveLength(1));
    await started.stop();
    await board.stop();
  });
});
