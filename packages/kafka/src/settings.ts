import type { KafkaSettings, Properties } from "./client/client.ts";

/** How long records are kept, in milliseconds; -1 is for ever. */
export interface Retention {
  /** 7 days unless set. The index by id keeps every artifact. */
  readonly artifacts?: number;
  /** 30 days unless set: longer than the longest pause of an agent, as a task that goes was never done. */
  readonly tasks?: number;
  /** 30 days unless set, or as long as artifacts are kept: a record may come again, and a task without its mark would run twice. */
  readonly processed?: number;
  /** 90 days unless set. */
  readonly deadLetters?: number;
}

/** Names that are not made of the prefix. */
export interface TopicOverrides {
  readonly artifacts?: string;
  readonly byId?: string;
  readonly processed?: string;
  readonly tasksPrefix?: string;
  readonly retryPrefix?: string;
  readonly deadLettersPrefix?: string;
}

/** What a board on Kafka is told besides its agents. Everything but `kafka` has a default. */
export interface KafkaBoardSettings {
  readonly kafka: KafkaSettings;
  /** Before the name of every topic and group; "flock." unless set. */
  readonly prefix?: string;
  readonly topics?: TopicOverrides;
  /** Of every topic but the dead letters, which have one; 8 unless set. It cannot be changed later. */
  readonly partitions?: number;
  /** Copies of a topic that is created; the brokers' default unless set. */
  readonly replication?: number;
  readonly retention?: Retention;
  /** The largest artifact as a record; 2 MiB unless set. Tasks may be four times as large, as they may hold several. */
  readonly maxRecordBytes?: number;
  /** Without them publication is at least once, and what comes twice is passed over downstream. */
  readonly transactions?: boolean;
  /**
   * Stable for this process and unlike that of any other that lives; the client's id unless set. A function is asked for
   * it with every producer that is made, also in place of one that was fenced off.
   */
  readonly transactionalId?: string | (() => Promise<string>);
  /** Producers of this process, one transaction at a time each; 4 unless set. */
  readonly producers?: number;
  /** The one delay of each retry topic, in milliseconds. */
  readonly retryDelaysMs?: readonly number[];
  /** Readers see nothing of transactions that are open or were aborted; true unless set. */
  readonly readCommitted?: boolean;
  /** After how long the partitions of a process that says nothing go to others; 10,000 unless set. */
  readonly sessionTimeoutMs?: number;
  /** Interval of heartbeats, by which a process learns that others joined or left its groups; 3,000 unless set. */
  readonly heartbeatMs?: number;
  /** How long stopping waits for work under way before it is aborted; 10,000 unless set. */
  readonly drainMs?: number;
  /** How long work may still take whose partition goes to another process before it is aborted; 5,000 unless set. */
  readonly leaveMs?: number;
  /** Artifacts that `recent` and the counts of correlations look back; 10,000 unless set. */
  readonly indexWindow?: number;
  /** Memory for the bodies of artifacts; 64 MiB unless set. What is not in it is read from the log. */
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

/** What an operator sets of the board on Kafka. Times are milliseconds. */
export interface OperatorSettings extends Omit<KafkaSettings, "log">, Shared {
  /** Copies of topics that are created; -1: the brokers' default. */
  readonly replication: number;
  readonly lingerMs: number;
  readonly batchBytes: number;
  /** Only "all" with transactions. */
  readonly acks: "all" | "1";
  readonly idempotence: boolean;
  /** Artifacts that the bounded lists look back. */
  readonly window: number;
  /** How long artifacts are kept. */
  readonly retentionMs: number;
}

/** What the board is told of an operator's settings. */
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
