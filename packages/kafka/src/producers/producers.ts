import type { Service } from "@khala/server/blackboard";
import type { OffsetOwner, TopicOffsets } from "../client/client_types.ts";
import type { Outgoing } from "../topics/records.ts";

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
