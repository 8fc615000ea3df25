import type { Context } from "@khala/server/blackboard";
import type { KafkaClient, Properties } from "../client/client.ts";
import type { KafkaProducer, TopicOffsets } from "../client/client_types.ts";
import { isUndelivered, toKhalaError } from "../client/kafka_errors.ts";
import { partitionFor } from "../client/native_producer.ts";
import type { Outgoing } from "../topics/records.ts";
import {
  connectProducer,
  discardProducer,
  disconnectProducer,
  Pool,
  PRODUCER_TIMEOUT_MS,
} from "./producer_pool.ts";
import type { Producers, Transaction } from "./producers.ts";

/** Writes at least once: all records are acknowledged before the offsets are committed. */
export function plainProducer(
  context: Pick<Context, "log">,
  client: KafkaClient,
  properties: Properties,
  partitions: number,
): Producers {
  const pool = new Pool(1, () =>
    connectProducer(
      client.producer({ properties: { "message.timeout.ms": PRODUCER_TIMEOUT_MS, ...properties } }),
    ),
  );
  const users = new Map<Promise<unknown>, KafkaProducer>();
  /** Runs `use` with the current producer, which stays open until it has ended. */
  const shared = async <T>(use: (producer: KafkaProducer) => Promise<T>): Promise<T> => {
    const lease = await pool.take().catch((error: unknown) => {
      throw toKhalaError(context, error);
    });
    const running = use(lease.value);
    users.set(running, lease.value);
    lease.release(true);
    try {
      return await running;
    } finally {
      users.delete(running);
    }
  };
  /** Replaces the producer, unless that has happened already. */
  const replace = async (producer: KafkaProducer) => {
    const lease = await pool.take();
    const isSame = lease.value === producer;
    lease.release(!isSame);
    // A producer that disconnects reports nothing about its queued records: their callers would wait for ever.
    const others = [...users].flatMap(([running, used]) => (used === producer ? [running] : []));
    if (isSame) discardProducer(context, producer, Promise.allSettled(others));
  };
  const run = async <T>(
    producer: KafkaProducer,
    work: (transaction: Transaction) => Promise<T>,
  ): Promise<T> => {
    try {
      const sends: Promise<unknown>[] = [];
      const offsets: (() => Promise<void>)[] = [];
      const result = await work({
        id: undefined,
        send(records) {
          const sending = send(producer, records, partitions);
          sending.catch(() => {});
          sends.push(sending);
          return sending;
        },
        async sendOffsets(consumer, topics) {
          offsets.push(() => consumer.commitOffsets(flat(topics)));
        },
      });
      await Promise.all(sends);
      for (const commit of offsets) await commit();
      return result;
    } catch (error) {
      // The client does not always find its brokers again: each further record would fail like this one.
      if (isUndelivered(error)) await replace(producer);
      throw toKhalaError(context, error);
    }
  };
  return {
    transaction: (work) => shared((producer) => run(producer, work)),
    ready: () => shared(async () => {}),
    async stop() {
      const producers = await pool.drain();
      await Promise.allSettled(users.keys());
      await Promise.all(producers.map(disconnectProducer));
    },
  };
}

async function send(
  producer: KafkaProducer,
  records: readonly Outgoing[],
  partitions: number,
): Promise<void> {
  const byTopic = Map.groupBy(records, ({ topic }) => topic);
  await producer.sendBatch({
    topicMessages: [...byTopic].map(([topic, outgoing]) => ({
      topic,
      // The client modifies its argument.
      // It also ends a string at its first NUL, so keys are bytes.
      messages: outgoing.map(({ record }) => {
        const key = typeof record.key === "string" ? Buffer.from(record.key) : (record.key ?? null);
        return { ...record, key, partition: record.partition ?? partitionFor(key, partitions) };
      }),
    })),
  });
}

function flat(topics: readonly TopicOffsets[]) {
  return topics.flatMap(({ topic, partitions }) =>
    partitions.map(({ partition, offset }) => ({ topic, partition, offset })),
  );
}
