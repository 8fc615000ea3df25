import { type Context, Wake } from "@khala/server/blackboard";
import { blockingCall } from "../client/blocking_calls.ts";
import type { WatchedKafka } from "../client/broker_watch.ts";
import { FETCH, type Properties } from "../client/client.ts";
import type { KafkaRecord, TopicPartition } from "../client/client_types.ts";
import {
  called,
  connectNative,
  type Done,
  makeNativeConsumer,
  type NativeClient,
} from "../client/native_client.ts";

/** The position to start at. */
export interface Position extends TopicPartition {
  readonly offset: number;
}

/** A record and its position. */
export interface LogRecord extends KafkaRecord {
  readonly topic: string;
  readonly partition: number;
  /** The same as `offset`, as a number: a partition never reaches 2^53 records. */
  readonly at: number;
}

/** The result of a poll: records in order, and partitions whose end was reached after them. */
export interface Poll {
  readonly records: readonly LogRecord[];
  /** The next offset: behind markers and aborted records, which have offsets too. */
  readonly ends: readonly Position[];
}

/** Reads partitions by their offsets, committed records only, without a group that could rebalance. */
export interface LogReader {
  /** Reads these partitions, and no others, from these positions. */
  assign(positions: readonly Position[]): void;
  /** Waits for records; returns none after `ms` or when the signal aborts. Throws when the reader must be replaced. */
  poll(max: number, ms: number, signal: AbortSignal): Promise<Poll>;
  close(): Promise<void>;
}

/** A record of the addon. */
export interface NativeRecord extends TopicPartition {
  readonly key: Buffer | string | null;
  readonly value: Buffer | null;
  readonly offset: number;
  readonly timestamp: number;
  readonly headers?: readonly Readonly<Record<string, Buffer>>[];
}

interface Native extends NativeClient {
  assign(positions: readonly Position[]): void;
  consume(max: number, done: Done<NativeRecord[]>): void;
  on(event: "partition.eof", listener: (end: Position) => void): void;
  on(event: "event.error" | "error", listener: (error: Error) => void): void;
}

/** Opens a reader. `name` is its group, which it never joins: a cluster with access lists must allow it. */
export async function openLogReader(
  context: Pick<Context, "clock">,
  kafka: WatchedKafka,
  name: string,
  properties: Properties = {},
): Promise<LogReader> {
  const wake = new Wake();
  const consumer = await makeNativeConsumer<Native>(kafka, name, {
    "isolation.level": "read_committed",
    "enable.partition.eof": true,
    ...FETCH,
    ...properties,
    queue_non_empty_cb: () => wake.wake(),
  });
  let ends: Position[] = [];
  consumer.on("partition.eof", ({ topic, partition, offset }) => ends.push({ topic, partition, offset }));
  await connectNative(consumer);
  const sight = kafka.watch?.add(consumer);
  return {
    assign(positions) {
      ends = [];
      consumer.assign(positions);
    },
    async poll(max, ms, signal) {
      const deadline = context.clock.now() + ms;
      for (;;) {
        sight?.check();
        const records = (await called<NativeRecord[]>((done) => consumer.consume(max, done))).map(recordOf);
        const reached = ends;
        ends = [];
        const left = deadline - context.clock.now();
        if (records.length > 0 || reached.length > 0 || left <= 0 || signal.aborted)
          return { records, ends: reached };
        await wake.wait(context, left, signal);
      }
    },
    async close() {
      await sight?.end();
      await blockingCall(() => called((done) => consumer.disconnect(done))).catch((error: Error) =>
        kafka.log?.("warn", `A reader did not disconnect cleanly: ${error.message}`),
      );
    },
  };
}

/** A record of the addon in the form that the driver uses. */
export function recordOf({
  topic,
  partition,
  key,
  value,
  offset,
  timestamp,
  headers,
}: NativeRecord): LogRecord {
  return {
    topic,
    partition,
    at: offset,
    offset: String(offset),
    key: typeof key === "string" ? Buffer.from(key) : key,
    value,
    timestamp: String(timestamp),
    ...(headers && { headers: headersOf(headers) }),
  };
}

function headersOf(headers: readonly Readonly<Record<string, Buffer>>[]): Record<string, Buffer> {
  // The last of several headers with one name counts.
  return Object.assign({}, ...headers) as Record<string, Buffer>;
}
