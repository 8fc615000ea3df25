import { randomUUID } from "node:crypto";
import type { Artifact, Context, DeadLetter, Task } from "@khala/server/blackboard";
import { sharedKafka } from "@khala/test-support/kafka/kafka";
import { testContext } from "@khala/test-support/kit/context";
import { type KafkaClient, openKafkaClient } from "./client/client.ts";
import type { KafkaAdmin, NewRecord } from "./client/client_types.ts";
import { openClusterOffsets } from "./client/cluster_offsets.ts";
import { openPublisher, type Publisher } from "./flow/publisher.ts";
import { openProducers } from "./producers/open_producers.ts";
import type { Producers } from "./producers/producers.ts";
import { type KafkaBoardSettings, type ResolvedSettings, resolveSettings } from "./settings.ts";
import { createOrVerifyTopics } from "./topics/topic_setup.ts";
import { type TopicNames, topicNames, topicSpecs } from "./topics/topics.ts";
import { openViews, type Views } from "./views/views.ts";

/** A test's own topics on the shared broker, and the parts that use them. */
export interface Stage extends AsyncDisposable {
  readonly context: Context;
  readonly client: KafkaClient;
  readonly admin: KafkaAdmin;
  readonly settings: ResolvedSettings;
  readonly names: TopicNames;
  readonly producers: Producers;
  readonly published: Artifact[];
  /** Creates or verifies the topics, with the stage's settings or others. */
  setUp(other?: Partial<KafkaBoardSettings>): Promise<void>;
  /** Another process's views. */
  views(): Promise<Views>;
  publisher(views: Views): Publisher;
  /** Writes records as they are, outside any transaction. */
  write(topic: string, ...records: NewRecord[]): Promise<void>;
}

/** The agents of a stage. */
export const AGENTS = ["reviewer", "writer"];

/** Opens a stage. */
export async function openStage(options: Partial<KafkaBoardSettings> = {}): Promise<Stage> {
  const context = await testContext();
  const name = `t${randomUUID().slice(0, 8)}`;
  const settings = resolveSettings({
    kafka: { bootstrap: await sharedKafka(), clientId: name },
    prefix: `${name}.`,
    partitions: 2,
    retryDelaysMs: [1_000],
    ...options,
  });
  const names = topicNames(settings);
  const client = await openKafkaClient(settings.kafka);
  const admin = client.admin();
  await admin.connect();
  const plain = client.producer({ properties: { "message.max.bytes": 20_000_000 } });
  await plain.connect();
  const producers = openProducers(context, client, settings);
  const opened: { stop(): Promise<void> }[] = [];
  const published: Artifact[] = [];
  const setUp = async (other: Partial<KafkaBoardSettings> = {}) => {
    const resolved = resolveSettings({ ...settings, ...other });
    const specs = topicSpecs(resolved, names, AGENTS);
    await createOrVerifyTopics(context, admin, { kafka: settings.kafka, specs, replication: 1 });
  };
  await setUp();
  return {
    context,
    client,
    admin,
    settings,
    names,
    producers,
    published,
    setUp,
    async views() {
      const offsets = await openClusterOffsets(context, settings.kafka);
      opened.push(offsets);
      const views = await openViews(context, { offsets, settings, names, agents: AGENTS });
      opened.push(views);
      return views;
    },
    publisher: (views) =>
      openPublisher(context, {
        producers,
        settings,
        names,
        agents: AGENTS,
        views,
        observer: { published: (artifacts) => void published.push(...artifacts) },
        watch: { requireBrokers() {}, whileReachable: (call) => call() },
      }),
    async write(topic, ...records) {
      await plain.send({ topic, messages: records.map((record) => ({ ...record })) });
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(opened.map((each) => each.stop()));
      await producers.stop();
      await plain.disconnect();
      await admin.disconnect();
      await context.telemetry.shutdown();
    },
  };
}

/** An artifact with the given fields, and defaults for the rest. */
export function artifact(over: Partial<Artifact> = {}): Artifact {
  return {
    id: randomUUID(),
    type: "Draft",
    payload: { text: "words" },
    tags: [],
    produced_by: "user:ann",
    visibility: { kind: "org" },
    version: 1,
    created_at: new Date(0).toISOString(),
    org_id: "acme",
    depth: 0,
    ...over,
  };
}

/** A task of an agent for an artifact. */
export function task(over: Partial<Task> = {}): Task {
  const first = over.artifacts?.[0] ?? artifact();
  return {
    id: first.id,
    agent: "reviewer",
    artifacts: [first],
    key: first.correlation_id ?? first.id,
    attempt: 1,
    created_at: first.created_at,
    ...over,
  };
}

/** A dead letter of an agent. */
export function deadLetter(over: Partial<DeadLetter> = {}): DeadLetter {
  return {
    id: randomUUID(),
    agent: "reviewer",
    failure: { class: "TypeError", message: "no", stack: "at line 1", kind: "fatal" },
    attempts: 3,
    failed_at: new Date(1_000).toISOString(),
    origin: "flock.tasks.reviewer/1@42",
    ...over,
  };
}
