import type { Artifact, Failure, RecordPosition } from "@khala/server/blackboard";
import type { KafkaRecord, NewRecord } from "../client/client_types.ts";

/** Names of headers. Retries and dead letters use Spring Kafka's, with its big-endian numbers. */
export const HEADER = {
  traceparent: "traceparent",
  type: "khala-type",
  index: "khala-index",
  org: "khala-org",
  agent: "khala-agent",
  deadLetterId: "khala-dead-letter-id",
  failureKind: "khala-failure-kind",
  failedAt: "khala-failed-at",
  attempts: "retry_topic-attempts",
  due: "retry_topic-backoff-timestamp",
  originalTopic: "kafka_dlt-original-topic",
  originalPartition: "kafka_dlt-original-partition",
  originalOffset: "kafka_dlt-original-offset",
  originalTimestamp: "kafka_dlt-original-timestamp",
  exceptionClass: "kafka_dlt-exception-fqcn",
  exceptionMessage: "kafka_dlt-exception-message",
  exceptionStack: "kafka_dlt-exception-stacktrace",
} as const;

/** The maximum that the headers of a retry or a dead letter add to a record: longer values are cut. */
export const MAX_HEADER_BYTES = 65_536;
const MAX_CLASS_BYTES = 256;
const MAX_MESSAGE_BYTES = 4_096;
const MAX_STACK_BYTES = 32_768;
/** Ids with only zeros are invalid. */
const TRACEPARENT = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

export type Headers = NonNullable<NewRecord["headers"]>;

/** The original position of a record, and its timestamp there. */
export interface Origin extends RecordPosition {
  /** Milliseconds since 1970. */
  readonly timestamp: number;
}

/** The original position of a record. */
export function originHeaders({ topic, partition, offset, timestamp }: Origin): Headers {
  return {
    [HEADER.originalTopic]: topic,
    [HEADER.originalPartition]: int32(partition),
    [HEADER.originalOffset]: int64(BigInt(offset)),
    [HEADER.originalTimestamp]: int64(BigInt(Math.trunc(timestamp))),
  };
}

/** The failure, attempts and origin of a record, as Spring Kafka writes them. */
export function failureHeaders(failure: Failure, attempts: number, origin: Origin): Headers {
  return {
    ...originHeaders(origin),
    [HEADER.attempts]: int32(attempts),
    // As bytes: the client ends a string at its first NUL.
    [HEADER.exceptionClass]: Buffer.from(cut(failure.class, MAX_CLASS_BYTES)),
    [HEADER.exceptionMessage]: Buffer.from(cut(failure.message, MAX_MESSAGE_BYTES)),
    ...(failure.stack !== undefined && {
      [HEADER.exceptionStack]: Buffer.from(cut(failure.stack, MAX_STACK_BYTES)),
    }),
    [HEADER.failureKind]: failure.kind,
  };
}

/** The index's summary of an artifact: its version, then a JSON list. */
export function indexHeader({ version, type, org_id, correlation_id }: Artifact): Headers {
  const list = correlation_id === undefined ? [type, org_id] : [type, org_id, correlation_id];
  return { [HEADER.index]: `${version} ${JSON.stringify(list)}` };
}

/** A due time as a header. */
export function dueHeader(at: number): Headers {
  return { [HEADER.due]: int64(BigInt(Math.trunc(at))) };
}

/** The failure in a record's headers. */
export function failureOf(record: Pick<KafkaRecord, "headers">): Failure {
  const kind = headerText(record, HEADER.failureKind);
  const stack = headerText(record, HEADER.exceptionStack);
  return {
    class: headerText(record, HEADER.exceptionClass) ?? "Error",
    message: headerText(record, HEADER.exceptionMessage) ?? "The record has no error message.",
    ...(stack !== undefined && { stack }),
    kind: kind === "fatal" || kind === "rate_limited" ? kind : "retryable",
  };
}

/** The position of a record before it was retried, or its own. */
export function originOf(
  record: Pick<KafkaRecord, "headers" | "timestamp">,
  position: RecordPosition,
): Origin {
  const topic = headerText(record, HEADER.originalTopic);
  const partition = headerNumber(record, HEADER.originalPartition, 4);
  const offset = headerNumber(record, HEADER.originalOffset, 8);
  const timestamp = headerNumber(record, HEADER.originalTimestamp, 8);
  if (topic === undefined || partition === undefined || offset === undefined)
    return { ...position, timestamp: Number(record.timestamp) };
  return { topic, partition, offset: String(offset), timestamp: timestamp ?? Number(record.timestamp) };
}

/** The trace of a record, if its header names one. */
export function traceOf(record: Pick<KafkaRecord, "headers">): string | undefined {
  const text = headerText(record, HEADER.traceparent);
  return text !== undefined && TRACEPARENT.test(text) ? text : undefined;
}

/** The last header of that name, as text. */
export function headerText(record: Pick<KafkaRecord, "headers">, name: string): string | undefined {
  return headerBytes(record, name)?.toString("utf8");
}

/** The last header of that name, as a number of `size` bytes; undefined if it is missing, or not exact in JavaScript. */
export function headerNumber(
  record: Pick<KafkaRecord, "headers">,
  name: string,
  size: 4 | 8,
): number | undefined {
  const bytes = headerBytes(record, name);
  if (bytes?.length !== size) return undefined;
  const value = size === 4 ? bytes.readInt32BE() : Number(bytes.readBigInt64BE());
  return Number.isSafeInteger(value) ? value : undefined;
}

function headerBytes({ headers }: Pick<KafkaRecord, "headers">, name: string): Buffer | undefined {
  const value = headers?.[name];
  const last = Array.isArray(value) ? value.at(-1) : value;
  return typeof last === "string" ? Buffer.from(last) : last;
}

/** Cuts text to a number of bytes, between characters. */
export function cut(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= maxBytes) return text;
  let end = maxBytes;
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.toString("utf8", 0, end);
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

function int64(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(value);
  return bytes;
}
