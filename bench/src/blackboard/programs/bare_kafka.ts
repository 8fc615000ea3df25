import { randomUUID } from "node:crypto";
import { GroupCommit, type Outcome } from "@khala/server/blackboard";
import { pino } from "pino";
import { openKafkaClient } from "../../../../packages/kafka/src/client/client.ts";
import type { NewRecord } from "../../../../packages/kafka/src/client/client_types.ts";
import { openProducers } from "../../../../packages/kafka/src/producers/open_producers.ts";
import { resolveSettings } from "../../../../packages/kafka/src/settings.ts";
import { systemClock } from "../../../../packages/server/src/kit/clock.ts";
import { type BoardStore, PARTITIONS } from "../bench.ts";
import { serveQueue } from "../queue.ts";

type Where = NonNullable<BoardStore["kafka"]>;

/** Partitions that are handled at a time: as many as there are producers. */
const AT_ONCE = 4;

// The client and its producers as the board uses them, and nothing of the board.
serveQueue<Where>({
  async publisher(where) {
    const { client, producers, input, output } = await open(where);
    const admin = client.admin();
    await admin.connect();
    await admin.createTopics({
      topics: [input, output].map((topic) => ({ topic, numPartitions: PARTITIONS, replicationFactor: 1 })),
    });
    await admin.disconnect();
    // Calls share a transaction as they do at the board.
    const commits = new GroupCommit<readonly NewRecord[], undefined>({
      maxItems: 1_000,
      maxBytes: 8 << 20,
      maxWaitingBytes: 64 << 20,
      sizeOf: (records) => records.length * 500,
      async commit(calls): Promise<Outcome[]> {
        const records = calls.flat().map((record) => ({ topic: input, record }));
        await producers.transaction((transaction) => transaction.send(records));
        return calls.map(() => ({ ok: undefined }));
      },
    });
    return {
      async put(payloads) {
        await commits.write(payloads.map(recordOf));
      },
      close: () => producers.stop(),
    };
  },

  async worker(where, { settled }) {
    const { client, producers, input, output } = await open(where);
    const consumer = client.consumer({
      groupId: `${where.prefix}loop`,
      properties: { "fetch.wait.max.ms": 100, "allow.auto.create.topics": false },
    });
    await consumer.connect();
    await consumer.subscribe({ topics: [input] });
    await consumer.run({
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: AT_ONCE,
      async eachBatch({ batch, resolveOffset, isStale }) {
        const { topic, partition, messages } = batch;
        const last = batch.lastOffset();
        await producers.transaction(async (transaction) => {
          if (isStale()) return;
          void transaction.send(
            messages.map(({ key, value }) => ({ topic: output, record: { key, value } })),
          );
          const offsets = [{ partition, offset: String(Number(last) + 1) }];
          await transaction.sendOffsets(consumer, [{ topic, partitions: offsets }]);
        });
        resolveOffset(last);
        settled(messages.length);
      },
    });
    return {
      async close() {
        await consumer.disconnect();
        await producers.stop();
      },
    };
  },
});

async function open({ bootstrap, prefix, transactions }: Where) {
  const settings = resolveSettings({
    kafka: { bootstrap, clientId: `bench-${randomUUID()}` },
    prefix,
    transactions,
    // As the settings of a server have them.
    producerProperties: { "linger.ms": 5, "batch.size": 1 << 20 },
  });
  const client = await openKafkaClient(settings.kafka);
  const context = { clock: systemClock, random: Math.random, log: pino({ level: "error" }) };
  const producers = openProducers(context, client, settings);
  return { client, producers, input: `${prefix}in`, output: `${prefix}out` };
}

/** As large as an artifact is with the same payload. */
function recordOf(payload: object): NewRecord {
  const id = randomUUID();
  const artifact = {
    id,
    type: "Finding",
    payload,
    tags: [],
    produced_by: "user:publisher",
    visibility: { kind: "org" },
    version: 1,
    created_at: "2026-01-01T00:00:00.000Z",
    org_id: "bench",
    depth: 0,
  };
  return { key: id, value: JSON.stringify(artifact) };
}
