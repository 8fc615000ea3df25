import { KhalaError } from "@khala/contracts";
import { type Context, sleep } from "@khala/server/blackboard";
import type { KafkaSettings } from "../client/client.ts";
import type { KafkaAdmin, TopicMetadata } from "../client/client_types.ts";
import { openPlainAdmin } from "../client/plain_admin.ts";
import type { TopicSpec } from "./topics.ts";

export interface TopicSetupOptions {
  readonly kafka: KafkaSettings;
  readonly specs: readonly TopicSpec[];
  /** Replicas of created topics; the brokers' default without it. */
  readonly replication?: number | undefined;
}

const TIMEOUT_MS = 10_000;
const APPEAR_MS = 30_000;
const RETRY_MS = 50;
/** Settings of which a larger value is accepted too, and -1 means unlimited. */
const AT_LEAST = new Set(["retention.ms", "max.message.bytes"]);

/** Creates missing topics, and refuses to start on one with wrong settings. */
export async function createOrVerifyTopics(
  context: Pick<Context, "clock">,
  admin: KafkaAdmin,
  { kafka, specs, replication }: TopicSetupOptions,
): Promise<void> {
  const there = new Set(await admin.listTopics({ timeout: TIMEOUT_MS }));
  const missing = specs.filter(({ topic }) => !there.has(topic));
  if (missing.length > 0) {
    await admin.createTopics({
      timeout: TIMEOUT_MS,
      topics: missing.map(({ topic, partitions, configs }) => ({
        topic,
        numPartitions: partitions,
        ...(replication !== undefined && { replicationFactor: replication }),
        configEntries: Object.entries(configs).map(([name, value]) => ({ name, value })),
      })),
    });
  }
  const topics = specs.map(({ topic }) => topic);
  const partitions = await metadata(context, admin, topics);
  const configs = await openTopicConfigs(kafka);
  try {
    const settings = await eventually(context, "the settings of the topics", () => configs.describe(topics));
    const faults = specs.flatMap((spec) => [
      ...partitionFaults(spec, partitions.get(spec.topic)!),
      ...configFaults(spec, settings.get(spec.topic) ?? new Map()),
    ]);
    if (faults.length > 0) throw new KhalaError("invalid_request", faults.join("\n"));
  } finally {
    await configs.close();
  }
}

function partitionFaults({ topic, partitions }: TopicSpec, found: number): string[] {
  if (found === partitions) return [];
  return [
    `The topic ${topic} has ${found} partitions, but KAFKA_PARTITIONS is ${partitions}. A different number breaks the order of keys. Set KAFKA_PARTITIONS=${found}, or move to new topics with another KAFKA_TOPIC_PREFIX.`,
  ];
}

function configFaults({ topic, configs }: TopicSpec, found: ReadonlyMap<string, string | null>): string[] {
  return Object.entries(configs)
    .filter(([name, wanted]) => !suits(name, found.get(name) ?? null, wanted))
    .map(([name, wanted]) => {
      const least = AT_LEAST.has(name) ? "at least " : "";
      return `The topic ${topic} has ${name}=${found.get(name) ?? "(none)"} but needs ${least}${wanted}. Change it with kafka-configs, or choose another KAFKA_TOPIC_PREFIX.`;
    });
}

function suits(name: string, found: string | null, wanted: string): boolean {
  if (found === null) return false;
  if (name === "cleanup.policy") return parts(found) === parts(wanted);
  if (!AT_LEAST.has(name)) return found === wanted;
  if (Number(found) === -1) return true;
  return wanted !== "-1" && Number(found) >= Number(wanted);
}

function parts(policy: string): string {
  return policy
    .split(",")
    .map((part) => part.trim())
    .sort()
    .join();
}

/** The number of partitions of each topic, once every broker asked knows all of them and their leaders. */
async function metadata(
  context: Pick<Context, "clock">,
  admin: KafkaAdmin,
  topics: readonly string[],
): Promise<Map<string, number>> {
  return eventually(context, `the topics ${topics.join(", ")}`, async () => {
    const found = await admin.fetchTopicMetadata({ topics, timeout: TIMEOUT_MS });
    if (found.length < topics.length || !found.every(hasLeaders))
      throw new Error("a topic has no leader yet");
    return new Map(found.map(({ name, partitions }) => [name, partitions.length]));
  });
}

function hasLeaders({ partitions }: TopicMetadata): boolean {
  return partitions.length > 0 && partitions.every(({ leader }) => leader >= 0);
}

/** A new topic is not known to every broker at once. */
async function eventually<T>(
  { clock }: Pick<Context, "clock">,
  what: string,
  read: () => Promise<T>,
): Promise<T> {
  const deadline = clock.now() + APPEAR_MS;
  for (;;) {
    try {
      return await read();
    } catch (error) {
      if (clock.now() >= deadline)
        throw new KhalaError(
          "unavailable",
          `Kafka does not return ${what}: ${(error as Error).message}. Check its brokers and the rights of this client.`,
          {},
          { cause: error },
        );
      await sleep(clock, RETRY_MS);
    }
  }
}

const TOPIC = 2;

/** The settings of topics, which the native client cannot read. */
export interface TopicConfigs {
  /** All settings by name, for each topic. Throws for a topic that does not exist. */
  describe(topics: readonly string[]): Promise<ReadonlyMap<string, ReadonlyMap<string, string | null>>>;
  close(): Promise<void>;
}

/** Opens the settings of a cluster's topics. */
export async function openTopicConfigs(settings: KafkaSettings): Promise<TopicConfigs> {
  const admin = await openPlainAdmin(settings);
  return {
    async describe(topics) {
      const described = await admin.describeConfigs({
        resources: topics.map((resourceName) => ({ resourceType: TOPIC, resourceName })),
      });
      return new Map(
        described.map(({ resourceName, configs }) => [
          resourceName,
          new Map(configs.map(({ name, value }) => [name, value])),
        ]),
      );
    },
    close: () => admin.close(),
  };
}
