import { KhalaError } from "@khala/contracts";
import { backoff, type Context, sleep, Wake, withTimeout } from "@khala/server/blackboard";
import type { LogRecord, Position } from "../topics/log_reader.ts";
import type { WatchedKafka } from "./broker_watch.ts";
import { FETCH, type Properties } from "./client.ts";
import { type OffsetOwner, partitionKey, type TopicPartition } from "./client_types.ts";
import type { ClusterOffsets } from "./cluster_offsets.ts";
import { kafkaCode } from "./kafka_errors.ts";
import { commitOffsets, type NativeConsumer, openNativeConsumer } from "./native_consumer.ts";

/** Records of one partition, in order. */
export interface Batch extends TopicPartition {
  readonly records: readonly [LogRecord, ...LogRecord[]];
}

/** The settings shared by all consumer groups of a process. */
export interface Membership {
  readonly kafka: WatchedKafka;
  readonly offsets: Pick<ClusterOffsets, "committed" | "removeMember">;
  readonly readCommitted: boolean;
  readonly sessionTimeoutMs: number;
  readonly heartbeatMs: number;
}

/** The settings and handlers of a group member. */
export interface GroupOptions {
  readonly groupId: string;
  readonly topics: readonly string[];
  /** Records taken at a time. */
  readonly batch: number;
  readonly properties?: Properties;
  /** `positions` is the start offset of each. */
  onAssign?(positions: readonly Position[]): void;
  /** The partitions stay this member's until it resolves, unless they are lost. */
  onRevoke?(partitions: readonly TopicPartition[], lost: boolean): Promise<void>;
  /** Takes records, by partition. After an error it is called again until they are revoked, or the member leaves: nothing is skipped. */
  onBatches(batches: readonly Batch[]): Promise<void> | void;
  /** Called when the member cannot continue. */
  onFailure(error: Error): void;
}

/** A member of a consumer group. */
export interface Group {
  /** For the offsets in a transaction. */
  readonly owner: OffsetOwner;
  /** Only during a batch: later records would be delivered twice. */
  pause(partition: TopicPartition): void;
  resume(partition: TopicPartition): void;
  leave(): Promise<void>;
}

/** Poll interval when there is nothing to read: brokers expect polls, and a notification may be lost. */
const IDLE_MS = 100;
/** After a partition is resumed, no notification may announce its first records. */
const RESUMED_MS = 1_000;
const RESUMED_IDLE_MS = 5;
const FAILED_MS = 1_000;
const MAX_FAILURES = 12;
const GIVEN_UP_MS = 60_000;
/** The time limit of leaving. */
const CLOSE_MS = 3_000;
/** How long leaving waits for a running join. */
const JOINING_MS = 1_000;
const JOINING_EVERY_MS = 5;
const LEAVE_MS = 500;
const FATAL = -150;
const BEGINNING = -2;

/** Joins a group and reads until it leaves. An assigned partition starts at its committed offset. */
export async function joinGroup(
  context: Context,
  { kafka, offsets, readCommitted, sessionTimeoutMs, heartbeatMs }: Membership,
  options: GroupOptions,
): Promise<Group> {
  const { log } = context;
  // For a single topic the partition number is enough, and need not be formatted for each record.
  const keyOf: (record: TopicPartition) => number | string =
    options.topics.length === 1 ? ({ partition }) => partition : partitionKey;
  const leaving = new AbortController();
  const { signal } = leaving;
  const wake = new Wake();
  let resumedAt = 0;
  let handling: Promise<unknown> = Promise.resolve();
  let rebalancing: Promise<void> = Promise.resolve();
  const assigned = new Set<string>();
  /** Rejoins after partitions were revoked. */
  let joining = true;
  let closing = false;
  // A client id of its own, so that the group's state can be queried for it.
  const clientId = `${kafka.clientId}-${context.newId()}`;

  async function rebalance(kind: "assign" | "revoke", partitions: readonly TopicPartition[]): Promise<void> {
    log.debug({ group: options.groupId, kind, partitions }, "partitions rebalance");
    // The addon waits for the last call of each kind, even when it is being closed.
    if (kind === "assign") {
      let positions: readonly TopicPartition[] = partitions;
      try {
        if (!signal.aborted) {
          const starts = partitions.length > 0 ? await committed(partitions) : [];
          positions = starts;
          if (!signal.aborted) options.onAssign?.(starts);
        }
      } finally {
        consumer.assign(positions);
        for (const partition of partitions) assigned.add(partitionKey(partition));
        joining = false;
      }
      for (const partition of partitions) consumer.resume(partition);
    } else {
      try {
        // Work was abandoned before closing.
        if (!closing) {
          await handling;
          await options.onRevoke?.(partitions, consumer.lost());
        }
      } finally {
        consumer.unassign(partitions);
        for (const partition of partitions) assigned.delete(partitionKey(partition));
        joining = true;
      }
    }
  }

  /** The start offset. An open transaction of the previous owner may decide it. */
  async function committed(partitions: readonly TopicPartition[]): Promise<Position[]> {
    const found = await offsets.committed([options.groupId], { stable: partitions });
    const own = found.get(options.groupId);
    return partitions.map(({ topic, partition }) => {
      const offset = own?.get(topic)?.get(partition) ?? -1;
      return { topic, partition, offset: offset >= 0 ? offset : BEGINNING };
    });
  }

  /** Waits for rebalances that are running, or about to reach this thread. */
  async function steady(): Promise<void> {
    for (let seen: unknown; seen !== rebalancing; ) {
      seen = rebalancing;
      await rebalancing;
      for (let turns = 0; turns < 2; turns++) await new Promise(setImmediate);
    }
  }

  /** Waits until it has joined, if it is about to: before that its group has no id for it, and could not remove it. */
  async function joined(until: AbortSignal): Promise<void> {
    await steady();
    while (joining && !until.aborted) {
      await sleep(context.clock, JOINING_EVERY_MS, until);
      // The record is dropped without a commit: the next owner reads it again.
      await consumer.take(1);
      await steady();
    }
  }

  async function close(): Promise<void> {
    const late = new AbortController();
    const cancel = context.clock.after(JOINING_MS, () => late.abort());
    try {
      await joined(late.signal);
    } catch (error) {
      log.warn({ err: (error as Error).message, group: options.groupId }, "a poll failed");
    }
    cancel();
    closing = true;
    const hasPartitions = assigned.size > 0 && !consumer.lost();
    const begun = Promise.withResolvers<void>();
    const over = new AbortController();
    const closed = consumer.close(begun.resolve).finally(() => over.abort());
    await Promise.race([begun.promise, closed]);
    await sleep(context.clock, LEAVE_MS, over.signal);
    // A member that is rejoining is blocked until its group has rebalanced, and one without partitions sends no
    // LeaveGroup at all.
    if (!hasPartitions || !over.signal.aborted) await removeFromGroup();
    await closed;
  }

  async function removeFromGroup(): Promise<void> {
    try {
      await offsets.removeMember(options.groupId, clientId);
    } catch (error) {
      log.warn(
        { err: (error as Error).message, group: options.groupId },
        "a reader may stay in its group until its session times out",
      );
    }
  }

  async function handle(batches: readonly Batch[]): Promise<void> {
    for (let failures = 0; !signal.aborted; ) {
      try {
        return await options.onBatches(batches);
      } catch (error) {
        log.warn({ err: (error as Error).message, group: options.groupId }, "records could not be processed");
        // The new owner reads them from the last commit. A retry here would keep this member from rejoining.
        if (consumer.lost()) return;
        if (isStale(error) || ++failures >= MAX_FAILURES) {
          options.onFailure(error as Error);
          await sleep(context.clock, GIVEN_UP_MS, signal);
        }
        await sleep(context.clock, backoff(failures, context.random, { base: 20, cap: 2_000 }), signal);
      }
    }
  }

  async function read(): Promise<void> {
    while (!signal.aborted) {
      await rebalancing;
      try {
        consumer.check();
        const records = await consumer.take(options.batch);
        // Partitions may be revoked in the same call, after their records were collected: the new owner reads them too.
        await rebalancing;
        const batches = [...Map.groupBy(records, keyOf).values()].map(batchOf);
        const own = batches.filter((batch) => assigned.has(partitionKey(batch)));
        if (own.length > 0) {
          handling = handle(own);
          await handling;
        }
        const idleMs = context.clock.now() - resumedAt < RESUMED_MS ? RESUMED_IDLE_MS : IDLE_MS;
        if (records.length === 0) await wake.wait(context, idleMs, signal);
      } catch (error) {
        if (kafkaCode(error) === FATAL || isLost(error)) options.onFailure(error as Error);
        log.warn({ err: (error as Error).message, group: options.groupId }, "a poll failed");
        await sleep(context.clock, FAILED_MS, signal);
      }
    }
  }

  const consumer: NativeConsumer = await openNativeConsumer(
    { ...kafka, clientId },
    {
      groupId: options.groupId,
      readCommitted,
      properties: {
        // Only the partitions that move are taken away, and their work with them.
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": sessionTimeoutMs,
        // A member learns with its next heartbeat that others have joined or left.
        "heartbeat.interval.ms": Math.min(heartbeatMs, Math.floor(sessionTimeoutMs / 3)),
        ...FETCH,
        ...options.properties,
      },
      onReady: () => wake.wake(),
      onRebalance(kind, partitions) {
        rebalancing = rebalancing
          .then(() => rebalance(kind, partitions))
          .catch((error: Error) => {
            if (!signal.aborted) options.onFailure(error);
          });
      },
    },
  );
  consumer.subscribe(options.topics);
  const reading = read();
  return {
    owner: {
      lend: consumer.lend,
      commitOffsets: (positions = []) => commitOffsets(context, consumer, positions),
    },
    pause(partition) {
      if (!signal.aborted) consumer.pause(partition);
    },
    resume(partition) {
      if (signal.aborted) return;
      consumer.resume(partition);
      resumedAt = context.clock.now();
      wake.wake();
    },
    async leave() {
      leaving.abort();
      const left = reading.then(close);
      if (
        await withTimeout(
          context.clock,
          CLOSE_MS,
          left.then(() => true),
          false,
        )
      )
        return;
      log.warn({ group: options.groupId }, "a reader did not leave its group in time");
    },
  };
}

function batchOf(records: readonly LogRecord[]): Batch {
  const [first, ...rest] = records as [LogRecord, ...LogRecord[]];
  return { topic: first.topic, partition: first.partition, records: [first, ...rest] };
}

/** Whether the member sees no broker any more. */
function isLost(error: unknown): boolean {
  return error instanceof KhalaError && error.code === "unavailable";
}

/** Whether this process was fenced off: nothing that it reads can be settled. */
function isStale(error: unknown): boolean {
  return error instanceof KhalaError && error.code === "stale_producer";
}
