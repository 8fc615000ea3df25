import { randomUUID } from "node:crypto";
import type { KafkaClient, KafkaSettings } from "../../../kafka/src/client/client.ts";
import type { KafkaRecord, NewTopic } from "../../../kafka/src/client/client_types.ts";
import { openPlainAdmin, type PlainAdmin } from "../../../kafka/src/client/plain_admin.ts";
import { openTopicConfigs } from "../../../kafka/src/topics/topic_setup.ts";
import { eventually } from "../kit/eventually.ts";
import { until } from "../kit/until.ts";

const TOPIC = 2;
const SET = 0;

/** A topic with a unique name. */
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

interface Altering extends PlainAdmin {
  incrementalAlterConfigs(options: { readonly resources: readonly object[] }): Promise<void>;
}

/** Changes the named settings of a topic and leaves the others. The broker has applied them when it returns. */
export async function alterTopic(
  kafka: KafkaSettings,
  topic: string,
  settings: Readonly<Record<string, string>>,
): Promise<void> {
  const wanted = Object.entries(settings);
  const admin = (await openPlainAdmin(kafka)) as Altering;
  const topicConfigs = await openTopicConfigs(kafka);
  try {
    const configs = wanted.map(([name, value]) => ({ name, value, configOperation: SET }));
    await admin.incrementalAlterConfigs({
      resources: [{ resourceType: TOPIC, resourceName: topic, configs }],
    });
    await until("the broker has heard it from the controller", async () => {
      const known = (await topicConfigs.describe([topic])).get(topic);
      return wanted.every(([name, value]) => known?.get(name) === value);
    });
  } finally {
    await Promise.all([admin.close(), topicConfigs.close()]);
  }
}

interface Partitioning extends PlainAdmin {
  createPartitions(options: {
    readonly topics: readonly {
      readonly name: string;
      readonly count: number;
      readonly assignments: readonly { readonly brokerIds: readonly number[] }[];
    }[];
  }): Promise<void>;
}

/** Adds partitions to a topic, as an operator might. The broker knows them when it returns. */
export async function addPartitions(kafka: KafkaSettings, topic: string, more: number): Promise<void> {
  const admin = (await openPlainAdmin(kafka)) as Partitioning;
  try {
    const { brokers, topics } = await admin.metadata({ topics: [topic] });
    const count = topics.get(topic)!.partitionsCount + more;
    const assignments = Array.from({ length: more }, () => ({ brokerIds: [...brokers.keys()].slice(0, 1) }));
    await admin.createPartitions({ topics: [{ name: topic, count, assignments }] });
    await until("the broker has heard it from the controller", async () => {
      const known = await admin.metadata({ topics: [topic], forceUpdate: true });
      return known.topics.get(topic)?.partitionsCount === count;
    });
  } finally {
    await admin.close();
  }
}

/** A record and the partition that it was in. */
export type TopicRecord = KafkaRecord & { readonly partition: number };

/** Reads a topic from its beginning until `enough` holds: a number of records, or a predicate. */
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

/** The values of the records as text. */
export function values(records: readonly KafkaRecord[]): string[] {
  return records.map(({ value }) => String(value));
}
