import type { Board, BoardOptions, Context } from "@khala/server/blackboard";
import type { KafkaSettings } from "./client.ts";
import { clientLog } from "./client_log.ts";
import { openBoard } from "./open_board.ts";
import type { TopicOverrides } from "./settings.ts";

/** What an operator sets of the board on Kafka. Times are milliseconds. */
export interface KafkaBoardSettings extends Omit<KafkaSettings, "log"> {
  /** Exactly-once publication; without it, at least once with dedup. */
  readonly transactions: boolean;
  /** Stable for this process, unique among those that live. */
  readonly transactionalId: string;
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

/** Opens a board on Kafka: its topics are there and as they must be, and its index is read to the end. */
export function openKafkaBoard(context: Context, given: BoardOptions & KafkaBoardSettings): Promise<Board> {
  const { bootstrap, clientId, sasl, ssl, retryDelaysMs, sessionTimeoutMs, drainMs, ...options } = given;
  const kafka: KafkaSettings = {
    bootstrap,
    clientId,
    ...(sasl && { sasl }),
    ...(ssl && { ssl }),
    log: clientLog(context),
  };
  return openBoard(context, {
    agents: options.agents,
    route: options.route,
    routes: options.routes,
    observer: options.observer,
    kafka,
    prefix: options.prefix,
    ...(options.topics && { topics: options.topics }),
    partitions: options.partitions,
    ...(options.replication > 0 && { replication: options.replication }),
    transactions: options.transactions,
    transactionalId: options.transactionalId,
    readCommitted: options.readCommitted,
    indexWindow: options.window,
    retention: { artifacts: options.retentionMs },
    ...(retryDelaysMs && { retryDelaysMs }),
    ...(sessionTimeoutMs !== undefined && { sessionTimeoutMs }),
    ...(drainMs !== undefined && { drainMs }),
    producerProperties: {
      "linger.ms": options.lingerMs,
      "batch.size": options.batchBytes,
      ...(!options.transactions && {
        acks: options.acks === "all" ? -1 : 1,
        "enable.idempotence": options.idempotence && options.acks === "all",
      }),
    },
  });
}
