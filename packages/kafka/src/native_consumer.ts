import { KhalaError } from "@khala/contracts";
import { Calls } from "./calls.ts";
import { type KafkaSettings, loadClient, type Properties, RECONNECT, tls } from "./client.ts";
import type { OffsetOwner, TopicPartition } from "./client_types.ts";
import { type LogRecord, type NativeRecord, type Position, recordOf } from "./log_reader.ts";
import { waiting } from "./native_waits.ts";

type Done<T> = (error: Error | null, value: T) => void;

interface Native {
  connect(options: { timeout: number }, done: Done<unknown>): void;
  disconnect(done: Done<unknown>): void;
  subscribe(topics: readonly string[]): void;
  unsubscribe(): void;
  consume(max: number, done: Done<NativeRecord[]>): void;
  commitCb(positions: readonly Position[], done: Done<unknown>): void;
  committed(partitions: readonly TopicPartition[], timeoutMs: number, done: Done<MaybePosition[]>): void;
  incrementalAssign(positions: readonly TopicPartition[]): void;
  incrementalUnassign(partitions: readonly TopicPartition[]): void;
  assignmentLost(): boolean;
  pause(partitions: readonly TopicPartition[]): void;
  resume(partitions: readonly TopicPartition[]): void;
  setDefaultConsumeTimeout(ms: number): void;
  setDefaultIsTimeoutOnlyForFirstMessage(only: boolean): void;
  on(event: "event.error" | "error", listener: (error: Error) => void): void;
}

/** Without an offset where none is committed. */
type MaybePosition = TopicPartition & { readonly offset?: number };

interface NativeModule {
  readonly KafkaConsumer: new (properties: object, topicProperties: object) => Native;
}

/** A member of a group, as the addon has it: no memory of its own between the broker and us, and so no seeks. */
export interface NativeConsumer extends Required<Pick<OffsetOwner, "lend">> {
  subscribe(topics: readonly string[]): void;
  /** Gives up what is assigned: that comes as a rebalance while records are taken. */
  unsubscribe(): void;
  /** What is there already. */
  take(max: number): Promise<LogRecord[]>;
  /** Begins where it is said, else at the committed offset. */
  assign(positions: readonly TopicPartition[]): void;
  unassign(partitions: readonly TopicPartition[]): void;
  /** Whether the brokers have given this member up. */
  lost(): boolean;
  pause(partition: TopicPartition): void;
  resume(partition: TopicPartition): void;
  /** Asks for offsets to be committed: whether they are, only `committed` tells. */
  commit(positions: readonly Position[]): Promise<void>;
  /** What the group has committed, with all that was asked for before. */
  committed(partitions: readonly TopicPartition[]): Promise<readonly MaybePosition[]>;
  /**
   * Waits for the calls that are under way, and refuses others: the addon ends the process when a call meets a consumer
   * that is closed or being closed. A rebalance must not be open.
   */
  close(): Promise<void>;
}

export interface NativeConsumerOptions {
  readonly groupId: string;
  readonly readCommitted: boolean;
  readonly properties: Properties;
  /** There is something to take. */
  onReady(): void;
  /** Partitions come, or leave when they are unassigned. */
  onRebalance(kind: "assign" | "revoke", partitions: readonly TopicPartition[]): void;
}

const CONNECT_MS = 30_000;
const COMMITTED_MS = 5_000;
const ASSIGN = -175;

/** Connects a consumer whose partitions are assigned by hand, as its group gives and takes them. */
export async function openNativeConsumer(
  { bootstrap, clientId, sasl, ssl, log }: KafkaSettings,
  options: NativeConsumerOptions,
): Promise<NativeConsumer> {
  const { KafkaConsumer } = await loadClient<NativeModule>("@confluentinc/kafka-javascript");
  const native = new KafkaConsumer(
    {
      "bootstrap.servers": bootstrap,
      "client.id": clientId,
      "group.id": options.groupId,
      "security.protocol": `${sasl ? "sasl_" : ""}${ssl ? "ssl" : "plaintext"}`,
      ...(sasl && {
        "sasl.mechanisms": sasl.mechanism.toUpperCase(),
        "sasl.username": sasl.username,
        "sasl.password": sasl.password,
      }),
      ...tls(ssl),
      "isolation.level": options.readCommitted ? "read_committed" : "read_uncommitted",
      ...RECONNECT,
      "enable.auto.commit": false,
      "enable.auto.offset.store": false,
      ...options.properties,
      queue_non_empty_cb: options.onReady,
      rebalance_cb: ({ code }: { readonly code: number }, partitions: readonly TopicPartition[]) =>
        options.onRebalance(code === ASSIGN ? "assign" : "revoke", partitions),
    },
    { "auto.offset.reset": "earliest" },
  );
  for (const event of ["event.error", "error"] as const)
    native.on(event, (error) => log?.("warn", error.message));
  await connected(native);
  // What is there already, at once: the wait is ours, and takes no thread.
  native.setDefaultConsumeTimeout(0);
  native.setDefaultIsTimeoutOnlyForFirstMessage(true);
  const calls = new Calls();
  return {
    subscribe: (topics) => calls.now(() => native.subscribe(topics)),
    unsubscribe: () => calls.now(() => native.unsubscribe()),
    take: async (max) =>
      (await calls.run(() => called<NativeRecord[]>((done) => native.consume(max, done)))).map(recordOf),
    assign: (positions) => calls.now(() => native.incrementalAssign(positions)),
    unassign: (partitions) => calls.now(() => native.incrementalUnassign(partitions)),
    lost: () => calls.closed || native.assignmentLost(),
    pause: (partition) => calls.now(() => native.pause([place(partition)])),
    resume: (partition) => calls.now(() => native.resume([place(partition)])),
    async commit(positions) {
      await calls.run(() => called((done) => native.commitCb(positions, done)));
    },
    committed: (partitions) =>
      waiting(() =>
        calls.run(() =>
          called<MaybePosition[]>((done) => native.committed(partitions.map(place), COMMITTED_MS, done)),
        ),
      ),
    lend: (use) => calls.run(() => use({ _getInternalClient: () => native })),
    async close() {
      await calls.close();
      await called((done) => native.disconnect(done));
    },
  };
}

function place({ topic, partition }: TopicPartition): TopicPartition {
  return { topic, partition };
}

async function connected(native: Native): Promise<void> {
  try {
    await waiting(() => called((done) => native.connect({ timeout: CONNECT_MS }, done)));
  } catch (error) {
    const message = `Kafka cannot be reached: ${(error as Error).message}. Look at KAFKA_BOOTSTRAP_SERVERS and the brokers.`;
    throw new KhalaError("unavailable", message, {}, { cause: error });
  }
}

function called<T>(call: (done: Done<T>) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    call((error, value) => (error ? reject(error) : resolve(value)));
  });
}
