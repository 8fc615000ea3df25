import { KhalaError } from "@khala/contracts";
import { AGENT_NAME, ROUTER } from "@khala/server/blackboard";
import type { KafkaBoardSettings, ResolvedSettings } from "../settings.ts";
import { MAX_HEADER_BYTES } from "./record_headers.ts";

/** The topics and groups of a board. */
export interface TopicNames {
  readonly artifacts: string;
  readonly byId: string;
  readonly processed: string;
  tasks(agent: string): string;
  /** The topic of one of the configured delays. */
  retry(delayMs: number): string;
  /** The group of an agent, or of the router. */
  deadLetters(agent: string): string;
  readonly routerGroup: string;
  agentGroup(agent: string): string;
  retryGroup(delayMs: number): string;
}

/** The required settings of a topic. */
export interface TopicSpec {
  readonly topic: string;
  readonly partitions: number;
  readonly configs: Readonly<Record<string, string>>;
}

/** A task may hold several artifacts: its record may be larger by this factor. */
const ARTIFACTS_PER_TASK = 4;
const TOPIC_NAME = /^[A-Za-z0-9._-]{1,249}$/;

/** The names of a board's topics and groups. */
export function topicNames({
  prefix = "flock.",
  topics = {},
}: Pick<KafkaBoardSettings, "prefix" | "topics">): TopicNames {
  const named = (name: string) => {
    if (TOPIC_NAME.test(name)) return name;
    throw new KhalaError(
      "invalid_request",
      `"${name}" cannot be the name of a Kafka topic: letters, digits, dots, dashes and underscores only, at most 249. Choose another prefix.`,
    );
  };
  const ofAgent = (start: string, agent: string) => {
    if (agent === ROUTER || AGENT_NAME.test(agent)) return named(`${start}${agent}`);
    throw new KhalaError("invalid_request", `"${agent}" cannot be the name of an agent.`, { field: "agent" });
  };
  return {
    artifacts: named(topics.artifacts ?? `${prefix}artifacts`),
    byId: named(topics.byId ?? `${prefix}by_id`),
    processed: named(topics.processed ?? `${prefix}processed`),
    tasks: (agent) => ofAgent(`${prefix}tasks.`, agent),
    retry: (delayMs) => named(`${prefix}retry.${delayText(delayMs)}`),
    deadLetters: (agent) => ofAgent(topics.deadLettersPrefix ?? `${prefix}dlq.`, agent),
    routerGroup: named(`${prefix}router`),
    agentGroup: (agent) => ofAgent(`${prefix}agent.`, agent),
    retryGroup: (delayMs) => named(`${prefix}retry.${delayText(delayMs)}`),
  };
}

/** Every topic of a board with these agents. */
export function topicSpecs(
  settings: ResolvedSettings,
  names: TopicNames,
  agents: readonly string[],
): TopicSpec[] {
  const { partitions, retention, maxRecordBytes, retryDelaysMs } = settings;
  const taskBytes = largestTask(settings);
  const spec = (topic: string, count: number, policy: string, retentionMs?: number, maxBytes?: number) => ({
    topic,
    partitions: count,
    configs: {
      "cleanup.policy": policy,
      ...(retentionMs !== undefined && { "retention.ms": String(retentionMs) }),
      ...(maxBytes !== undefined && { "max.message.bytes": String(maxBytes + MAX_HEADER_BYTES) }),
    },
  });
  return [
    spec(names.artifacts, partitions, "delete", retention.artifacts, maxRecordBytes),
    spec(names.byId, partitions, "compact", undefined, maxRecordBytes),
    spec(names.processed, partitions, "compact,delete", retention.processed),
    ...agents.map((agent) => spec(names.tasks(agent), partitions, "delete", retention.tasks, taskBytes)),
    ...retryDelaysMs.map((ms) => spec(names.retry(ms), partitions, "delete", retention.tasks, taskBytes)),
    ...[ROUTER, ...agents].map((agent) =>
      // One partition: its offsets are the order in which people page through it.
      spec(names.deadLetters(agent), 1, "delete", retention.deadLetters, taskBytes),
    ),
  ];
}

/** The maximum bytes of a task as a record, without its headers. */
export function largestTask({ maxRecordBytes }: Pick<ResolvedSettings, "maxRecordBytes">): number {
  return maxRecordBytes * ARTIFACTS_PER_TASK;
}

/** A delay as written in the name of a topic: "1s", "5m", "250ms". */
export function delayText(ms: number): string {
  for (const [unit, length] of [
    ["h", 3_600_000],
    ["m", 60_000],
    ["s", 1_000],
  ] as const)
    if (ms >= length && ms % length === 0) return `${ms / length}${unit}`;
  return `${ms}ms`;
}
