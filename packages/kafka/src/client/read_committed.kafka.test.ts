import {
  Heard,
  makeTestArtifact,
  makeTestTask,
  newName,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { done, payloadOf, retry, start, Worker } from "@khala/test-support/conformance/board/worker";
import { kafkaHere, sharedKafka } from "@khala/test-support/kafka/kafka";
import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { describe, expect, test } from "vitest";
import { openKafkaBoard } from "../index.ts";
import { resolveSettings } from "../settings.ts";
import { artifactRecord, type Outgoing, taskRecord } from "../topics/records.ts";
import { topicNames } from "../topics/topics.ts";
import { type KafkaSettings, openKafkaClient } from "./client.ts";

const RETRY_MS = 200;

/** Writes records in a transaction that is aborted. */
async function abort(kafka: KafkaSettings, records: readonly Outgoing[]): Promise<void> {
  const client = await openKafkaClient(kafka);
  const producer = client.producer({ transactionalId: newName("aborts") });
  await producer.connect();
  const transaction = await producer.transaction();
  for (const { topic, record } of records) await transaction.send({ topic, messages: [{ ...record }] });
  await transaction.abort();
  await producer.disconnect();
}

describe.runIf(kafkaHere()).concurrent("a board", () => {
  test.each([
    { readCommitted: true, what: "and passes over what was aborted" },
    { readCommitted: false, what: "also what was aborted" },
  ])(
    "with KAFKA_READ_COMMITTED=$readCommitted publishes, routes, works, retries and settles, $what",
    async ({ readCommitted }) => {
      await using parts = new AsyncDisposableStack();
      const heard = new Heard();
      const kafka = { bootstrap: await sharedKafka(), clientId: newName("reader") };
      const prefix = `${kafka.clientId}.`;
      const board = await openKafkaBoard(await testContext(), {
        agents: [rules("agent")],
        route: routeByTags,
        observer: heard,
        ...kafka,
        readCommitted,
        transactions: true,
        transactionalId: kafka.clientId,
        acks: "all",
        idempotence: true,
        prefix,
        partitions: 1,
        replication: 1,
        lingerMs: 1,
        batchBytes: 65_536,
        window: 100,
        retentionMs: 3_600_000,
        retryDelaysMs: [RETRY_MS],
        sessionTimeoutMs: 30_000,
      });
      parts.defer(() => board.stop());
      const worker = new Worker("agent", (task) =>
        payloadOf(task) === "late" && task.attempt === 1 ? retry(RETRY_MS) : done(),
      );
      parts.use(start(worker, board));

      const aborted = ["artifact", "task"].map((payload) => makeTestArtifact({ to: "agent", payload }));
      const names = topicNames(resolveSettings({ kafka, prefix }));
      await abort(kafka, [
        { topic: names.artifacts, record: artifactRecord(aborted[0]!) },
        { topic: names.tasks("agent"), record: taskRecord(makeTestTask("agent", aborted[1]!)) },
      ]);
      const published = ["soon", "late"].map((payload) => makeTestArtifact({ to: "agent", payload }));
      await board.publish(published);
      const settled = () =>
        heard
          .settledBy("agent")
          .filter(({ settlement }) => settlement.kind === "done")
          .map(({ task }) => payloadOf(task));
      await eventually("what came last is settled", () => settled().includes("late"));
      await eventually("nobody lags", async () => (await board.lag()).every(({ lag }) => lag === "0"));
      const seen = readCommitted ? [] : ["artifact", "task"];
      expect(settled().toSorted()).toEqual([...seen, "late", "soon"].toSorted());
      expect(worker.errors).toEqual([]);
    },
  );
});
