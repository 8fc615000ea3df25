import { randomUUID } from "node:crypto";
import type { KafkaClient } from "../../packages/kafka/src/client.ts";
import type { KafkaRecord, NewTopic } from "../../packages/kafka/src/client_types.ts";
import { eventually } from "./eventually.ts";

/** A topic with a name that nobody else has. */
export async function newTopic(client: KafkaClient, options: Omit<NewTopic, "topic"> = {}): Promise<string> {
  const topic = `test.${randomUUID()}`;
  const admin = client.admin();
  await admin.connect();
  try {
    await admin.createTopics({ topics: [{ numPartitions: 1, ...options, topic }] });
  } finally {
    await admin.disconnect();
  }
  return topic;
}

/** A record and the partition that it was in. */
export type TopicRecord = KafkaRecord & { readonly partition: number };

/** Reads a topic from its beginning until `enough` says so: how many records, or a look at them. */
export async function readTopic(
  client: KafkaClient,
  topic: string,
  enough: number | ((records: readonly TopicRecord[]) => boolean),
): Promise<TopicRecord[]> {
  const records: TopicRecord[] = [];
  const consumer = client.consumer({ groupId: `reader.${randomUUID()}` });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [topic] });
    await consumer.run({
      async eachBatch({ batch }) {
        records.push(...batch.messages.map((record) => ({ ...record, partition: batch.partition })));
      },
    });
    await eventually(`records in ${topic}`, () =>
      typeof enough === "number" ? records.length >= enough : enough(records),
    );
  } finally {
    await consumer.disconnect();
  }
  return records;
}

/** What the records say. */
export function values(records: readonly KafkaRecord[]): string[] {
  return records.map(({ value }) => String(value));
}
