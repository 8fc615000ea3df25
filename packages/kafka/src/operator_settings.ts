import type { KafkaSettings } from "./client/client.ts";
import type { KafkaBoardSettings, TopicOverrides } from "./settings.ts";

/** What an operator sets of the board on Kafka. Times are milliseconds. */
export interface OperatorSettings extends Omit<KafkaSettings, "log"> {
  /** Exactly-once publication; without it, at least once with dedup. */
  readonly transactions: boolean;
  /** Stable for this process, unique among those that live; a function is asked whenever a producer is made. */
  readonly transactionalId: string | (() => Promise<string>);
  /** Before the name of every topic and group. */
  readonly prefix: string;
  /** Names that are not made of the prefix. */
  readonly topics?: TopicOverrides;
  readonly partitions: number;
  /** Copies of topics that are created; -1: the brokers' default. */
  readonly replication: number;
  readonly lingerMs: number;
  readonly batchBytes: number;
  /** Only "all" with transactions. */
  readonly acks: "all" | "1";
  readonly idempotence: boolean;
  readonly readCommitted: boolean;
  /** Artifacts that the bounded lists look back. */
  readonly window: number;
  /** How long artifacts are kept. */
  readonly retentionMs: number;
  /** The one delay of each retry topic. */
  readonly retryDelaysMs?: readonly number[];
  /** How long stopping waits for work under way. */
  readonly drainMs?: number;
  /** After how long the partitions of a process that says nothing go to others. */
  readonly sessionTimeoutMs?: number;
}

/** What the board is told of it. */
export function boardSettings(given: OperatorSettings, log: KafkaSettings["log"]): KafkaBoardSettings {
  const { bootstrap, clientId, sasl, ssl, topics, replication } = given;
  const { retryDelaysMs, sessionTimeoutMs, drainMs } = given;
  return {
    kafka: { bootstrap, clientId, ...(sasl && { sasl }), ...(ssl && { ssl }), ...(log && { log }) },
    prefix: given.prefix,
    ...(topics && { topics }),
    partitions: given.partitions,
    ...(replication > 0 && { replication }),
    transactions: given.transactions,
    transactionalId: given.transactionalId,
    readCommitted: given.readCommitted,
    indexWindow: given.window,
    retention: { artifacts: given.retentionMs },
    ...(retryDelaysMs && { retryDelaysMs }),
    ...(sessionTimeoutMs !== undefined && { sessionTimeoutMs }),
    ...(drainMs !== undefined && { drainMs }),
    producerProperties: {
      "linger.ms": given.lingerMs,
      "batch.size": given.batchBytes,
      ...(!given.transactions && {
        acks: given.acks === "all" ? -1 : 1,
        "enable.idempotence": given.idempotence && given.acks === "all",
      }),
    },
  };
}
