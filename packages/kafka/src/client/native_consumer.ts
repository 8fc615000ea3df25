import { KhalaError } from "@khala/contracts";
import { type Context, sleep } from "@khala/server/blackboard";
import { type LogRecord, type NativeRecord, type Position, recordOf } from "../topics/log_reader.ts";
import { blockingCall } from "./blocking_calls.ts";
import type { WatchedKafka } from "./broker_watch.ts";
import type { Properties } from "./client.ts";
import type { OffsetOwner, TopicPartition } from "./client_types.ts";
import { kafkaCode } from "./kafka_errors.ts";
import { called, connectNative, type Done, makeNativeConsumer, type NativeClient } from "./native_client.ts";
import { OpenCalls } from "./open_calls.ts";

interface Native extends NativeClient {
  subscribe(topics: readonly string[]): void;
  consume(max: number, done: Done<NativeRecord[]>): void;
  commitCb(positions: readonly Position[], done: Done<unknown>): void;
  committed(partitions: readonly TopicPartition[], timeoutMs: number, done: Done<MaybePosition[]>): void;
  incrementalAssign(positions: readonly TopicPartition[]): void;
  incrementalUnassign(partitions: readonly TopicPartition[]): void;
  assignmentLost(): boolean;
  pause(partitions: readonly TopicPartition[]): void;
  resume(partitions: readonly TopicPartition[]): void;
}

/** Without an offset if none is committed. */
type MaybePosition = TopicPartition & { readonly offset?: number };

/** A member of a group on the addon: without a buffer between the broker and this code, and so without seeks. */
export interface NativeConsumer extends Required<Pick<OffsetOwner, "lend">> {
  subscribe(topics: readonly string[]): void;
  /** Throws when it can read no more, and must be replaced. */
  check(): void;
  /** The records available now. */
  take(max: number): Promise<LogRecord[]>;
  /** Starts at the given offset, else at the committed one. */
  assign(positions: readonly TopicPartition[]): void;
  unassign(partitions: readonly TopicPartition[]): void;
  /** Whether the brokers have removed this member. */
  lost(): boolean;
  pause(partition: TopicPartition): void;
  resume(partition: TopicPartition): void;
  /** Asks for a commit of offsets; only `committed` tells whether it succeeded. */
  commit(positions: readonly Position[]): Promise<void>;
  /** The group's committed offsets, after all earlier requests. */
  committed(partitions: readonly TopicPartition[]): Promise<readonly MaybePosition[]>;
  /**
   * Waits for running calls, and refuses others: the addon ends the process when a call meets a consumer
   * that is closed or being closed. Only rebalances are answered until the end: assigned partitions are revoked now, and
   * closing waits for that without end. `begun` is called when closing starts.
   */
  close(begun: () => void): Promise<void>;
}

export interface NativeConsumerOptions {
  readonly groupId: string;
  readonly readCommitted: boolean;
  readonly properties: Properties;
  /** Called when records are available. */
  onReady(): void;
  /** Called when partitions are assigned or revoked. */
  onRebalance(kind: "assign" | "revoke", partitions: readonly TopicPartition[]): void;
}

const COMMITTED_MS = 5_000;
const ASSIGN = -175;

/** Connects a consumer with manual assignment, as its group assigns and revokes partitions. */
export async function openNativeConsumer(
  kafka: WatchedKafka,
  options: NativeConsumerOptions,
): Promise<NativeConsumer> {
  const native = await makeNativeConsumer<Native>(kafka, options.groupId, {
    "isolation.level": options.readCommitted ? "read_committed" : "read_uncommitted",
    ...options.properties,
    queue_non_empty_cb: options.onReady,
    rebalance_cb: ({ code }: { readonly code: number }, partitions: readonly TopicPartition[]) =>
      options.onRebalance(code === ASSIGN ? "assign" : "revoke", partitions),
  });
  await connectNative(native);
  const sight = kafka.watch?.add(native);
  const calls = new OpenCalls();
  return {
    subscribe: (topics) => calls.now(() => native.subscribe(topics)),
    check: () => sight?.check(),
    take: async (max) =>
      (await calls.run(() => called<NativeRecord[]>((done) => native.consume(max, done)))).map(recordOf),
    assign(positions) {
      try {
        native.incrementalAssign(positions);
      } catch (error) {
        // While closing, the answer to every rebalance is an empty assignment.
        if (!calls.closed) throw error;
        native.incrementalUnassign(positions);
      }
    },
    unassign: (partitions) => native.incrementalUnassign(partitions),
    lost: () => calls.closed || native.assignmentLost(),
    pause: (partition) => calls.now(() => native.pause([bare(partition)])),
    resume: (partition) => calls.now(() => native.resume([bare(partition)])),
    async commit(positions) {
      await calls.run(() => called((done) => native.commitCb(positions, done)));
    },
    committed: (partitions) =>
      blockingCall(() =>
        calls.run(() =>
          called<MaybePosition[]>((done) => native.committed(partitions.map(bare), COMMITTED_MS, done)),
        ),
      ),
    lend: (use) => calls.run(() => use({ _getInternalClient: () => native })),
    async close(begun) {
      await Promise.all([calls.close(), sight?.end()]);
      // Not before: the calls above may need a thread, and this call would hold one.
      await blockingCall(() => {
        begun();
        return called((done) => native.disconnect(done));
      });
    },
  };
}

/** The addon takes no other fields. */
function bare({ topic, partition }: TopicPartition): TopicPartition {
  return { topic, partition };
}

type Member = Pick<NativeConsumer, "commit" | "committed" | "lost">;

/** A group refuses offsets while it rebalances; that ends sooner than this. */
const LIMIT_MS = 15_000;
const PAUSE_MS = 50;

/**
 * Commits offsets, without a transaction, and resolves when the group has them. The client does not report refused
 * offsets, such as those of an old generation: they would be missing until something else of the partition is
 * committed, however long that takes.
 */
export async function commitOffsets(
  { clock }: Pick<Context, "clock">,
  member: Member,
  offsets: readonly (TopicPartition & { readonly offset: string })[],
): Promise<void> {
  const positions = offsets.map(({ topic, partition, offset }) => ({
    topic,
    partition,
    offset: Number(offset),
  }));
  const deadline = clock.now() + LIMIT_MS;
  for (;;) {
    const error = await refusal(member, positions);
    if (!error) return;
    if (member.lost() || clock.now() >= deadline) throw error;
    await sleep(clock, PAUSE_MS);
  }
}

/** The reason the group does not have these offsets; undefined if it does. */
async function refusal(
  member: Member,
  positions: readonly (TopicPartition & { readonly offset: number })[],
): Promise<Error | undefined> {
  try {
    await member.commit(positions);
    const found = await member.committed(positions);
    const missing = positions.find(
      ({ topic, partition, offset }) =>
        !found.some(
          (each) => each.topic === topic && each.partition === partition && (each.offset ?? -1) >= offset,
        ),
    );
    if (!missing) return undefined;
    return new KhalaError(
      "unavailable",
      `Kafka did not accept offset ${missing.offset} of partition ${missing.partition} of ${missing.topic}, for example because its group is rebalancing. Try again.`,
      { retry_after_ms: 500 },
    );
  } catch (error) {
    // A code of the client: the coordinator moves, or does not answer.
    if (kafkaCode(error) === undefined) throw error;
    return error as Error;
  }
}
