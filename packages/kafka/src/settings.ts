import type { KafkaSettings, Properties } from "./client/client.ts";

/** How long records are kept, in milliseconds; -1 is for ever. */
export interface Retention {
  /** 7 days unless set. The index by id keeps every artifact. */
  readonly artifacts?: number;
  /** 30 days unless set: longer than the longest pause of an agent, as an expired task is lost. */
  readonly tasks?: number;
  /** 30 days unless set, or as long as artifacts are kept: a record may come again, and a task without its mark would run twice. */
  readonly processed?: number;
  /** 90 days unless set. */
  readonly deadLetters?: number;
}

/** Topic names that override the prefix. */
export interface TopicOverrides {
  readonly artifacts?: string;
  readonly byId?: string;
  readonly processed?: string;
  readonly deadLettersPrefix?: string;
}

/** The settings of a board on Kafka, besides its agents. Everything but `kafka` has a default. */
export interface KafkaBoardSettings {
  readonly kafka: KafkaSettings;
  /** False leaves routing and retries to the other processes of the board; true unless set. */
  readonly routes?: boolean;
  /** The prefix of every topic and group name; "flock." unless set. */
  readonly prefix?: string;
  readonly topics?: TopicOverrides;
  /** Of every topic but the dead letters, which have one; 8 unless set. It cannot be changed later. */
  readonly partitions?: number;
  /** Copies of a topic that is created; the brokers' default unless set. */
  readonly replication?: number;
  readonly retention?: Retention;
  /** The largest artifact as a record; 2 MiB unless set. Tasks may be four times as large, as they may hold several. */
  readonly maxRecordBytes?: number;
  /** Without them publication is at least once, and consumers skip duplicates. */
  readonly transactions?: boolean;
  /**
   * Stable for this process and unlike that of any other live one; the client's id unless set. A function is called
   * for every new producer, also for the replacement of a fenced one.
   */
  readonly transactionalId?: string | (() => Promise<string>);
  /** Producers of this process, one transaction at a time each; 4 unless set. */
  readonly producers?: number;
  /** The one delay of each retry topic, in milliseconds. */
  readonly retryDelaysMs?: readonly number[];
  /** Hides records of open and aborted transactions from readers; true unless set. */
  readonly readCommitted?: boolean;
  /** The time after which the partitions of a silent process go to others; 10,000 unless set. */
  readonly sessionTimeoutMs?: number;
  /** Interval of heartbeats, by which a process learns that others joined or left its groups; 3,000 unless set. */
  readonly heartbeatMs?: number;
  /** How long stopping waits for running work before it aborts it; 10,000 unless set. */
  readonly drainMs?: number;
  /** How long the running work of a revoked partition may still take before it is aborted; 5,000 unless set. */
  readonly leaveMs?: number;
  /** The number of artifacts that `recent` and the counts of correlations cover; 10,000 unless set. */
  readonly indexWindow?: number;
  /** Memory for the bodies of artifacts; 64 MiB unless set. Others are read from the log. */
  readonly indexBytes?: number;
  /** Settings of librdkafka for all producers, such as `linger.ms` and `batch.size`. */
  readonly producerProperties?: Properties;
  /** Settings of librdkafka for all consumers. */
  readonly consumerProperties?: Properties;
}

/** The settings with their defaults. */
export type ResolvedSettings = Required<
  Omit<KafkaBoardSettings, "replication" | "retention"> & { readonly retention: Required<Retention> }
> &
  Pick<KafkaBoardSettings, "replication">;

const DAY_MS = 86_400_000;

/** Fills in the defaults. */
export function resolveSettings(settings: KafkaBoardSettings): ResolvedSettings {
  return {
    routes: true,
    prefix: "flock.",
    topics: {},
    partitions: 8,
    maxRecordBytes: 2 * 1_048_576,
    transactions: true,
    transactionalId: settings.kafka.clientId,
    producers: 4,
    retryDelaysMs: [1_000, 10_000, 60_000, 300_000],
    readCommitted: true,
    sessionTimeoutMs: 10_000,
    heartbeatMs: 3_000,
    drainMs: 10_000,
    leaveMs: 5_000,
    indexWindow: 10_000,
    indexBytes: 64 * 1_048_576,
    producerProperties: {},
    consumerProperties: {},
    ...settings,
    retention: {
      artifacts: 7 * DAY_MS,
      tasks: 30 * DAY_MS,
      processed: longest(30 * DAY_MS, settings.retention?.artifacts ?? 0, settings.retention?.tasks ?? 0),
      deadLetters: 90 * DAY_MS,
      ...settings.retention,
    },
  };
}

function longest(...times: readonly number[]): number {
  return times.includes(-1) ? -1 : Math.max(...times);
}

type Shared = Required<
  Pick<KafkaBoardSettings, "transactions" | "transactionalId" | "prefix" | "partitions" | "readCommitted">
> &
  Pick<KafkaBoardSettings, "topics" | "retryDelaysMs" | "drainMs" | "sessionTimeoutMs">;

/** An operator's settings of the board on Kafka. Times are milliseconds. */
export interface OperatorSettings extends Omit<KafkaSettings, "log">, Shared {
  /** Copies of topics that are created; -1: the brokers' default. */
  readonly replication: number;
  readonly lingerMs: number;
  readonly batchBytes: number;
  /** Only "all" with transactions. */
  readonly acks: "all" | "1";
  readonly idempotence: boolean;
  /** The number of artifacts that the bounded lists cover. */
  readonly window: number;
  /** How long artifacts are kept. */
  readonly retentionMs: number;
}

/** The board's settings, made of an operator's. */
export function boardSettings(given: OperatorSettings, log: KafkaSettings["log"]): KafkaBoardSettings {
  const { bootstrap, clientId, sasl, ssl, replication, window, retentionMs, ...others } = given;
  const { lingerMs, batchBytes, acks, idempotence, ...shared } = others;
  return {
    ...shared,
    kafka: { bootstrap, clientId, ...(sasl && { sasl }), ...(ssl && { ssl }), ...(log && { log }) },
    ...(replication > 0 && { replication }),
    indexWindow: window,
    retention: { artifacts: retentionMs },
    producerProperties: {
      "linger.ms": lingerMs,
      "batch.size": batchBytes,
      ...(!shared.transactions && {
        acks: acks === "all" ? -1 : 1,
        "enable.idempotence": idempotence && acks === "all",
      }),
    },
  };
}
