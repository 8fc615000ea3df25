import { KhalaError } from "@khala/contracts";
import { type Context, Wake } from "@khala/server/blackboard";
import { FETCH, type KafkaSettings, loadClient, type Properties, RECONNECT, tls } from "./client.ts";
import type { KafkaRecord, TopicPartition } from "./client_types.ts";
import { waiting } from "./native_waits.ts";

/** Where reading begins. */
export interface Position extends TopicPartition {
  readonly offset: number;
}

/** A record, and where it is. */
export interface LogRecord extends KafkaRecord {
  readonly topic: string;
  readonly partition: number;
  /** The same as `offset`, as a number: a partition does not come to 2^53 records. */
  readonly at: number;
}

/** What has come since the last look: records in order, and partitions whose end was reached after them. */
export interface Poll {
  readonly records: readonly LogRecord[];
  /** The offset that comes next: beyond markers and what was aborted, which have offsets too. */
  readonly ends: readonly Position[];
}

/** Reads partitions by their offsets, committed records only, without a group that could rebalance. */
export interface LogReader {
  /** Reads these partitions, and no others, from there. */
  assign(positions: readonly Position[]): void;
  /** Waits for something to come; empty after `ms` or when the signal aborts. */
  poll(max: number, ms: number, signal: AbortSignal): Promise<Poll>;
  close(): Promise<void>;
}

/** A record as the addon hands it over. */
export interface NativeRecord extends TopicPartition {
  readonly key: Buffer | string | null;
  readonly value: Buffer | null;
  readonly offset: number;
  readonly timestamp: number;
  readonly headers?: readonly Readonly<Record<string, Buffer>>[];
}

interface NativeConsumer {
  connect(options: { timeout: number }, done: (error: Error | null) => void): void;
  disconnect(done: (error: Error | null) => void): void;
  assign(positions: readonly Position[]): void;
  consume(max: number, done: (error: Error | null, records: NativeRecord[]) => void): void;
  setDefaultConsumeTimeout(ms: number): void;
  setDefaultIsTimeoutOnlyForFirstMessage(only: boolean): void;
  on(event: "partition.eof", listener: (end: Position) => void): void;
  on(event: "event.error" | "error", listener: (error: Error) => void): void;
}

interface NativeModule {
  readonly KafkaConsumer: new (properties: object, topicProperties: object) => NativeConsumer;
}

const CONNECT_MS = 30_000;

/** Opens a reader. `name` is its group, which is never joined: a cluster with access lists must allow it. */
export async function openLogReader(
  context: Pick<Context, "clock">,
  { bootstrap, clientId, sasl, ssl, log }: KafkaSettings,
  name: string,
  properties: Properties = {},
): Promise<LogReader> {
  const { KafkaConsumer } = await loadClient<NativeModule>("@confluentinc/kafka-javascript");
  const wake = new Wake();
  const consumer = new KafkaConsumer(
    {
      "bootstrap.servers": bootstrap,
      "client.id": clientId,
      "group.id": name,
      "security.protocol": `${sasl ? "sasl_" : ""}${ssl ? "ssl" : "plaintext"}`,
      ...(sasl && {
        "sasl.mechanisms": sasl.mechanism.toUpperCase(),
        "sasl.username": sasl.username,
        "sasl.password": sasl.password,
      }),
      ...tls(ssl),
      "isolation.level": "read_committed",
      ...RECONNECT,
      "enable.auto.commit": false,
      "enable.auto.offset.store": false,
      "enable.partition.eof": true,
      ...FETCH,
      ...properties,
      queue_non_empty_cb: () => wake.wake(),
    },
    { "auto.offset.reset": "earliest" },
  );
  let ends: Position[] = [];
  consumer.on("partition.eof", ({ topic, partition, offset }) => ends.push({ topic, partition, offset }));
  for (const event of ["event.error", "error"] as const)
    consumer.on(event, (error) => log?.("warn", error.message));
  await waiting(() => connected(consumer));
  // What is there already, at once: the wait is ours, and takes no thread.
  consumer.setDefaultConsumeTimeout(0);
  consumer.setDefaultIsTimeoutOnlyForFirstMessage(true);
  const take = (max: number) =>
    new Promise<NativeRecord[]>((resolve, reject) => {
      consumer.consume(max, (error, records) => (error ? reject(error) : resolve(records)));
    });
  return {
    assign(positions) {
      ends = [];
      consumer.assign(positions);
    },
    async poll(max, ms, signal) {
      const deadline = context.clock.now() + ms;
      for (;;) {
        const records = (await take(max)).map(recordOf);
        const reached = ends;
        ends = [];
        const left = deadline - context.clock.now();
        if (records.length > 0 || reached.length > 0 || left <= 0 || signal.aborted)
          return { records, ends: reached };
        await wake.wait(context, left, signal);
      }
    },
    close: () =>
      waiting(
        () =>
          new Promise((resolve) => {
            consumer.disconnect((error) => {
              if (error) log?.("warn", `A reader did not disconnect in order: ${error.message}`);
              resolve();
            });
          }),
      ),
  };
}

function connected(consumer: NativeConsumer): Promise<void> {
  return new Promise((resolve, reject) => {
    consumer.connect({ timeout: CONNECT_MS }, (error) => {
      if (!error) return resolve();
      const message = `Kafka cannot be reached: ${error.message}. Look at KAFKA_BOOTSTRAP_SERVERS and the brokers.`;
      reject(new KhalaError("unavailable", message, {}, { cause: error }));
    });
  });
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
  // Of several with one name the last counts.
  return Object.assign({}, ...headers) as Record<string, Buffer>;
}
