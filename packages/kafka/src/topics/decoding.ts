import {
  type Artifact,
  type DeadLetter,
  type RecordPosition,
  sha256,
  type Task,
} from "@khala/server/blackboard";
import type { KafkaRecord } from "../client/client_types.ts";
import { failureOf, HEADER, headerNumber, headerText, originOf, traceOf } from "./record_headers.ts";
import { type ProcessedEntry, positionText, type TaskEntry, type WaitingEntry } from "./records.ts";

/** What a record says, or why it says nothing: its bytes are then what there is. */
export type Decoded<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: string; readonly raw: Buffer | null };

/** A task that waits for its time. */
export interface Retry {
  readonly task: Task;
  /** Milliseconds since 1970. */
  readonly dueAt: number;
}

type Fields = Readonly<Record<string, unknown>>;
const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Reads a record of the log of artifacts or of the index. What a foreign producer may leave out gets its default. */
export function decodeArtifact(record: Pick<KafkaRecord, "value">): Decoded<Artifact> {
  return decoded(record, (value) => artifactOf(value, "the artifact"));
}

/** An artifact that names no trace is of the one that the header of its record names: other producers know only that. */
export function withTrace(artifact: Artifact, record: Pick<KafkaRecord, "headers">): Artifact {
  const traceparent = artifact.traceparent ? undefined : traceOf(record);
  return traceparent === undefined ? artifact : { ...artifact, traceparent };
}

/** Reads a record of the tasks of an agent. */
export function decodeTask(record: Pick<KafkaRecord, "value">): Decoded<Task> {
  return decoded(record, taskOf);
}

/** Reads a record of a retry topic. */
export function decodeRetry(record: Pick<KafkaRecord, "value" | "headers">): Decoded<Retry> {
  return decoded(record, (value) => {
    const dueAt = headerNumber(record, HEADER.due, 8);
    if (dueAt === undefined) throw new TypeError(`its header ${HEADER.due} is not a number in 8 bytes`);
    return { task: taskOf(value), dueAt };
  });
}

/** Reads a mark of `processed`. */
export function decodeProcessed(record: Pick<KafkaRecord, "value">): Decoded<ProcessedEntry> {
  return decoded(record, (value) => {
    const fields = fieldsOf(value, "the mark");
    const { result } = fields;
    if (result !== "done" && result !== "dead") throw new TypeError('`result` is not "done" or "dead"');
    return {
      ...taskEntryOf(fields),
      result,
      at: text(fields, "at"),
      topic: text(fields, "topic"),
      partition: integer(fields, "partition", 0),
      offset: text(fields, "offset"),
    };
  });
}

/** Reads what `processed` has of a task that waits in its place. */
export function decodeWaiting(record: Pick<KafkaRecord, "value">): Decoded<WaitingEntry> {
  return decoded(record, (value) => {
    const fields = fieldsOf(value, "the mark");
    if (fields.result !== "waits") throw new TypeError('`result` is not "waits"');
    return { ...taskEntryOf(fields), due_at: integer(fields, "due_at", 0) };
  });
}

function taskEntryOf(fields: Fields): TaskEntry {
  const replay = optionalText(fields, "replay_id");
  const correlation = optionalText(fields, "correlation_id");
  return {
    task_id: text(fields, "task_id"),
    agent: text(fields, "agent"),
    ...(replay !== undefined && { replay_id: replay }),
    ...(correlation !== undefined && { correlation_id: correlation }),
    org_id: text(fields, "org_id"),
    attempt: integer(fields, "attempt", 1),
  };
}

/** Reads a dead letter. One whose task cannot be read has its bytes instead. */
export function decodeDeadLetter(
  record: Pick<KafkaRecord, "value" | "headers" | "timestamp">,
  position: RecordPosition,
  agent: string,
): DeadLetter {
  const task = decodeTask(record);
  return {
    id: headerText(record, HEADER.deadLetterId) ?? idOf(position),
    agent,
    ...(task.ok && { task: task.value }),
    failure: failureOf(record),
    attempts: headerNumber(record, HEADER.attempts, 4) ?? 1,
    failed_at: headerText(record, HEADER.failedAt) ?? new Date(Number(record.timestamp)).toISOString(),
    origin: positionText(originOf(record, position)),
    ...(!task.ok && { raw: (record.value ?? Buffer.alloc(0)).toString("base64") }),
  };
}

function decoded<T>(record: Pick<KafkaRecord, "value">, read: (value: unknown) => T): Decoded<T> {
  if (record.value === null) return { ok: false, error: "The record has no value.", raw: null };
  try {
    return { ok: true, value: read(JSON.parse(utf8.decode(record.value))) };
  } catch (error) {
    const reason = (error as Error).message;
    return { ok: false, error: `The record cannot be read: ${reason}.`, raw: record.value };
  }
}

function taskOf(value: unknown): Task {
  const fields = fieldsOf(value, "the task");
  const { artifacts } = fields;
  if (!Array.isArray(artifacts)) throw new TypeError("`artifacts` is not a list");
  const [first, ...rest] = artifacts.map((each, i) => artifactOf(each, `artifacts[${i}]`));
  if (!first) throw new TypeError("`artifacts` is empty");
  return {
    ...fields,
    id: text(fields, "id"),
    agent: text(fields, "agent"),
    key: text(fields, "key"),
    attempt: integer(fields, "attempt", 1),
    created_at: text(fields, "created_at"),
    artifacts: [first, ...rest],
  };
}

function artifactOf(value: unknown, what: string): Artifact {
  const fields = fieldsOf(value, what);
  if (fields.payload === undefined) throw new TypeError(`${what} has no \`payload\``);
  for (const name of ["correlation_id", "partition_key", "traceparent"]) optionalText(fields, name);
  const visibility =
    fields.visibility === undefined ? { kind: "org" } : fieldsOf(fields.visibility, "`visibility`");
  const { tags = [] } = fields;
  if (!Array.isArray(tags) || tags.some((tag) => typeof tag !== "string"))
    throw new TypeError("`tags` is not a list of strings");
  return {
    ...fields,
    id: text(fields, "id"),
    type: text(fields, "type"),
    payload: fields.payload as Artifact["payload"],
    tags: tags as string[],
    produced_by: text(fields, "produced_by"),
    visibility: { ...visibility, kind: text(visibility, "kind") },
    version: integer(fields, "version", 1, 1),
    created_at: text(fields, "created_at"),
    org_id: text(fields, "org_id"),
    depth: integer(fields, "depth", 0, 0),
  };
}

function fieldsOf(value: unknown, what: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new TypeError(`${what} is not an object`);
  return value as Fields;
}

function text(fields: Fields, name: string): string {
  const value = fields[name];
  if (typeof value !== "string" || value === "") throw new TypeError(`\`${name}\` is not text`);
  return value;
}

function optionalText(fields: Fields, name: string): string | undefined {
  const value = fields[name];
  if (value !== undefined && typeof value !== "string") throw new TypeError(`\`${name}\` is not text`);
  return value;
}

function integer(fields: Fields, name: string, least: number, otherwise?: number): number {
  const value = fields[name] ?? otherwise;
  if (!Number.isSafeInteger(value) || (value as number) < least)
    throw new TypeError(`\`${name}\` is not a whole number from ${least}`);
  return value as number;
}

/** The id of a letter that came without one: the same whenever it is read. */
function idOf(position: RecordPosition): string {
  const hex = sha256(positionText(position));
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
