// The part of @confluentinc/kafka-javascript 1.10.1 (its `KafkaJS` part) that the driver uses, written by hand: the types are
// needed where the native client is not installed.

export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** A partition as the key of a map. */
export function partitionKey({ topic, partition }: TopicPartition): string {
  return `${partition}/${topic}`;
}

/** Offsets are decimal strings, as they pass 2^53. */
export interface TopicPartitionOffset extends TopicPartition {
  readonly offset: string;
}

export interface TopicOffsets {
  readonly topic: string;
  readonly partitions: readonly { readonly partition: number; readonly offset: string }[];
}

/** A record to write. A null value is a tombstone; a header must not be null. */
export interface NewRecord {
  readonly key?: Buffer | string | null;
  readonly value: Buffer | string | null;
  readonly partition?: number;
  readonly headers?: Readonly<Record<string, Buffer | string | readonly (Buffer | string)[]>>;
  /** Milliseconds since 1970, as a decimal string. */
  readonly timestamp?: string;
}

interface Connection {
  connect(): Promise<void>;
  disconnect(): Promise<void>;
}

/** Writes records. `commit`, `abort` and `sendOffsets` are for one made with a transactional id. */
export interface KafkaProducer extends Connection {
  send(records: { readonly topic: string; readonly messages: readonly NewRecord[] }): Promise<unknown>;
  sendBatch(batch: {
    readonly topicMessages: readonly { readonly topic: string; readonly messages: readonly NewRecord[] }[];
  }): Promise<unknown>;
  /** Begins a transaction, and returns the producer itself. One at a time. */
  transaction(): Promise<KafkaProducer>;
  /** Has a limit of 5 s of its own; after that (-185) the same call is made again. */
  commit(): Promise<void>;
  abort(): Promise<void>;
  sendOffsets(args: {
    readonly consumer: OffsetOwner | InternalClient;
    readonly topics: readonly TopicOffsets[];
  }): Promise<void>;
  isActive(): boolean;
  /** The addon's own producer; only once it is connected. */
  _getInternalClient(): NativeProducer;
}

/** A header in the addon's form: one member. */
export type NativeHeader = Readonly<Record<string, Buffer | string>>;

/** The addon's own producer. */
export interface NativeProducer {
  /** Throws at once what it refuses. `opaque` would never be freed without a report. */
  produce(
    topic: string,
    partition: number,
    value: Buffer | null,
    key: Buffer | null,
    timestamp: number,
    opaque: undefined,
    headers: readonly NativeHeader[] | undefined,
  ): void;
  removeAllListeners(event: "delivery-report"): unknown;
}

/** A record read from a topic. */
export interface KafkaRecord {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly timestamp: string;
  readonly offset: string;
  readonly headers?: Readonly<Record<string, Buffer | string | (Buffer | string)[] | undefined>>;
}

/** Records of one partition. */
export interface KafkaBatch extends TopicPartition {
  readonly messages: readonly KafkaRecord[];
  lastOffset(): string;
}

export interface EachBatch {
  readonly batch: KafkaBatch;
  resolveOffset(offset: string): void;
  /** Whether the partition was revoked or sought meanwhile. */
  isStale(): boolean;
}

export interface KafkaConsumer extends Connection {
  /** After `connect` and before `run`. */
  subscribe(topics: { readonly topics: readonly string[] }): Promise<void>;
  run(config: {
    readonly eachBatchAutoResolve?: boolean;
    readonly partitionsConsumedConcurrently?: number;
    readonly eachBatch: (payload: EachBatch) => Promise<void>;
  }): Promise<void>;
  commitOffsets(offsets?: readonly TopicPartitionOffset[]): Promise<void>;
  committed(partitions?: readonly TopicPartition[], timeoutMs?: number): Promise<TopicPartitionOffset[]>;
}

/** The place where a producer finds the member of a group whose generation fences its offsets. */
export interface InternalClient {
  _getInternalClient(): unknown;
}

/** The owner of committed offsets: a consumer, or a stand-in for one of the addon's own. */
export interface OffsetOwner extends Pick<KafkaConsumer, "commitOffsets"> {
  /** Keeps the member open during a call; refuses once it is closed. */
  lend?<T>(use: (member: InternalClient) => Promise<T>): Promise<T>;
}

export interface NewTopic {
  readonly topic: string;
  readonly numPartitions?: number;
  readonly replicationFactor?: number;
  readonly configEntries?: readonly { readonly name: string; readonly value: string }[];
}

export interface TopicMetadata {
  readonly name: string;
  readonly partitions: readonly {
    readonly leader: number;
  }[];
}

export interface KafkaAdmin extends Connection {
  /** Resolves with false when all of them existed already. */
  createTopics(options: {
    readonly topics: readonly NewTopic[];
    readonly timeout?: number;
  }): Promise<boolean>;
  listTopics(options?: { readonly timeout?: number }): Promise<string[]>;
  fetchTopicMetadata(options?: {
    readonly topics?: readonly string[];
    readonly timeout?: number;
  }): Promise<TopicMetadata[]>;
}
