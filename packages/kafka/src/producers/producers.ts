import type { Context, Service } from "@khala/server/blackboard";
import type { KafkaClient } from "../client/client.ts";
import type { OffsetOwner, TopicOffsets } from "../client/client_types.ts";
import type { ResolvedSettings } from "../settings.ts";
import type { Outgoing } from "../topics/records.ts";
import { largestTask } from "../topics/topics.ts";
import { plainProducer } from "./plain_producer.ts";
import { transactionalProducers } from "./transactional_producers.ts";

/** An atomic write: all of it becomes visible, or nothing. */
export interface Transaction {
  /** The transactional id, for spans; undefined without transactions. */
  readonly id: string | undefined;
  /** Sends records. Need not be awaited: the commit waits for the brokers, and fails if they refuse one. */
  send(records: readonly Outgoing[]): Promise<void>;
  /**
   * The next offsets of the consumer's group. Call it in the consumer's batch handler: the consumer's generation of
   * this moment fences a revoked partition.
   */
  sendOffsets(consumer: OffsetOwner, topics: readonly TopicOffsets[]): Promise<void>;
}

/** The producers of a process. */
export interface Producers extends Service {
  /**
   * Runs `work` on a free producer, and commits; waits for one while all are busy. Without transactions it writes
   * at least once, and commits offsets last. An error of `work` or of the commit aborts
   * everything, and is thrown as a KhalaError: `stale_producer` if another has taken over, else try again.
   */
  transaction<T>(work: (transaction: Transaction) => Promise<T>): Promise<T>;
  /** Resolves when a producer is available; rejects as `transaction` would. */
  ready(): Promise<void>;
}

/**
 * Idle connections are closed after this time, and opened again. This makes the client ask again which broker
 * coordinates a group when the coordinator is lost while offsets are sent: without it that call never ends.
 */
const IDLE_MS = 5_000;

/** Opens the producers of a process; they connect at their first use. */
export function openProducers(
  context: Pick<Context, "clock" | "log" | "random">,
  client: KafkaClient,
  settings: ResolvedSettings,
): Producers {
  const properties = {
    "linger.ms": 1,
    "connections.max.idle.ms": IDLE_MS,
    ...settings.producerProperties,
    "message.max.bytes": largestTask(settings) + 131_072,
  };
  const { transactions, partitions } = settings;
  return transactions
    ? transactionalProducers(context, client, settings, properties)
    : plainProducer(context, client, properties, partitions);
}
