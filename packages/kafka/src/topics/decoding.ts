import {
  type Artifact,
  type DeadLetter,
  isoTime,
  type RecordPosition,
  sha256,
  type Task,
} from "@khala/server/blackboard";
import type { KafkaRecord } from "../client/client_types.ts";
import { failureOf, HEADER, headerNumber, headerText, originOf, traceOf } from "./record_headers.ts";
import { type ProcessedEntry, positionText, type TaskEntry, type WaitingEntry } from "./records.ts";

/** The decoded value of a record, or the reason it cannot be decoded, with its bytes. */
export type Decoded<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: string; readonly raw: Buffer | null };

/** A task that waits for its due time. */
export interface Retry {
  readonly task: Task;
  /** Milliseconds since 1970. */
  readonly dueAt: number;
}

type Fields = Readonly<Record<string, unknown>>;
const utf8 = new TextDecoder("utf-8", { fatal: true });
/** More than the board's own texts need: keys are the longest. */
const MAX_TEXT = 2_048;
/** The range of PostgreSQL's integers. */
const MAX_INT32 = 2 ** 31 - 1;
/** Far more attempts than an agent may have; headers hold the next one too. */
const MAX_ATTEMPT = 1_000_000;
/** The last moment a Date can represent. */
const MAX_TIME = 8.64e15;
/** Far deeper than any payload, and far less than JSON.stringify can write. */
const MAX_DEPTH = 1_000;
const CONTROL = /\p{Cc}/u;
const REPLAY = /^[^+]*(\+\d{1,18})?$/;
const LETTER_ID = /^[\w.:-]{1,128}$/;
const ARRAY = 0x5b;
const OBJECT = 0x7b;

/** Decodes a record of the log of artifacts or of the index. Fields missing from another producer's record get defaults. */
export function decodeArtifact(record: Pick<KafkaRecord, "value">): Decoded<Artifact> {
  return decoded(record, (value) => artifactOf(value, "the artifact"));
}

/** An artifact without a trace belongs to the trace in its record's header: other producers set only that. */
export function withTrace(artifact: Artifact, record: Pick<KafkaRecord, "headers">): Artifact {
  const traceparent = artifact.traceparent ? undefined : traceOf(record);
  return traceparent === undefined ? artifact : { ...artifact, traceparent };
}

/** Decodes a record of an agent's tasks. With `agent`, another agent's task is an error. */
export function decodeTask(record: Pick<KafkaRecord, "value">, agent?: string): Decoded<Task> {
  return decoded(record, (value) => {
    const task = taskOf(value);
    if (agent !== undefined && task.agent !== agent) throw new TypeError(`\`agent\` is not "${agent}"`);
    return task;
  });
}

/** Decodes a record of a retry topic. */
export function decodeRetry(record: Pick<KafkaRecord, "value" | "headers">): Decoded<Retry> {
  return decoded(record, (value) => {
    const dueAt = headerNumber(record, HEADER.due, 8);
    if (dueAt === undefined) throw new TypeError(`its header ${HEADER.due} is not a number in 8 bytes`);
    return { task: taskOf(value), dueAt };
  });
}

/** Decodes a mark of `processed`. */
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
      partition: integer(fields, "partition", 0, MAX_INT32),
      offset: text(fields, "offset"),
    };
  });
}

/** Decodes the `processed` entry of a task that waits in place. */
export function decodeWaiting(record: Pick<KafkaRecord, "value">): Decoded<WaitingEntry> {
  return decoded(record, (value) => {
    const fields = fieldsOf(value, "the mark");
    if (fields.result !== "waits") throw new TypeError('`result` is not "waits"');
    return { ...taskEntryOf(fields), due_at: integer(fields, "due_at", 0, MAX_TIME) };
  });
}

function taskEntryOf(fields: Fields): TaskEntry {
  const correlation = optionalText(fields, "correlation_id");
  return {
    task_id: text(fields, "task_id"),
    agent: text(fields, "agent"),
    ...replayOf(fields),
    ...(correlation !== undefined && { correlation_id: correlation }),
    org_id: text(fields, "org_id"),
    attempt: integer(fields, "attempt", 1, MAX_ATTEMPT),
  };
}

/** Decodes a dead letter. One whose task cannot be decoded has its bytes instead. */
export function decodeDeadLetter(
  record: Pick<KafkaRecord, "value" | "headers" | "timestamp">,
  position: RecordPosition,
  agent: string,
): DeadLetter {
  const task = decodeTask(record);
  return {
    id: named(headerText(record, HEADER.deadLetterId)) ?? idOf(position),
    agent,
    ...(task.ok && { task: task.value }),
    failure: failureOf(record),
    attempts: headerNumber(record, HEADER.attempts, 4) ?? 1,
    failed_at: timeText(headerText(record, HEADER.failedAt)) ?? isoTime(writtenAt(record)),
    origin: positionText(originOf(record, position)),
    ...(!task.ok && { raw: (record.value ?? Buffer.alloc(0)).toString("base64") }),
  };
}

function decoded<T>(record: Pick<KafkaRecord, "value">, read: (value: unknown) => T): Decoded<T> {
  if (record.value === null) return { ok: false, error: "The record has no value.", raw: null };
  try {
    const value: unknown = JSON.parse(utf8.decode(record.value));
    if (isTooDeep(record.value, value)) throw new TypeError(`it is nested deeper than ${MAX_DEPTH} levels`);
    return { ok: true, value: read(value) };
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
    ...replayOf(fields),
    attempt: integer(fields, "attempt", 1, MAX_ATTEMPT),
    created_at: time(fields, "created_at"),
    artifacts: [first, ...rest],
  };
}

function artifactOf(value: unknown, what: string): Artifact {
  const fields = fieldsOf(value, what);
  if (fields.payload === undefined) throw new TypeError(`${what} has no \`payload\``);
  for (const name of ["correlation_id", "partition_key", "traceparent"]) optionalText(fields, name);
  const visibility =
    fields.visibility === undefined ? { kind: "org" } : fieldsOf(fields.visibility, "`visibility`");
  for (const name of ["labels", "agents"]) list(visibility, name);
  if (fields.conversation !== undefined) {
    const conversation = fieldsOf(fields.conversation, "`conversation`");
    for (const name of ["conv_id", "generation"]) text(conversation, name);
  }
  return {
    ...fields,
    id: text(fields, "id"),
    type: text(fields, "type"),
    payload: fields.payload as Artifact["payload"],
    tags: list(fields, "tags"),
    produced_by: text(fields, "produced_by"),
    visibility: { ...visibility, kind: text(visibility, "kind") },
    version: integer(fields, "version", 1, MAX_INT32, 1),
    created_at: time(fields, "created_at"),
    org_id: text(fields, "org_id"),
    depth: integer(fields, "depth", 0, MAX_INT32, 0),
  };
}

function fieldsOf(value: unknown, what: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new TypeError(`${what} is not an object`);
  return value as Fields;
}

function text(fields: Fields, name: string): string {
  const value = optionalText(fields, name);
  if (!value) throw new TypeError(`\`${name}\` is not text`);
  return value;
}

/** Text that every store accepts: PostgreSQL has the states of tasks, and accepts no NUL. */
function optionalText(fields: Fields, name: string): string | undefined {
  const value = fields[name];
  if (value === undefined || isText(value)) return value;
  throw new TypeError(`\`${name}\` is not text of up to ${MAX_TEXT} characters without control characters`);
}

function isText(value: unknown): value is string {
  return (
    typeof value === "string" && value.length <= MAX_TEXT && !CONTROL.test(value) && value.isWellFormed()
  );
}

function list(fields: Fields, name: string): string[] {
  const { [name]: value = [] } = fields;
  if (!Array.isArray(value) || !value.every(isText))
    throw new TypeError(`\`${name}\` is not a list of texts`);
  return value;
}

function time(fields: Fields, name: string): string {
  const value = timeText(text(fields, name));
  if (value === undefined) throw new TypeError(`\`${name}\` is not a time`);
  return value;
}

function timeText(value: string | undefined): string | undefined {
  return value === undefined || Number.isNaN(Date.parse(value)) ? undefined : value;
}

/** The id of a replay, which may end in "+" and the number of a pause. */
function replayOf(fields: Fields): { readonly replay_id?: string } {
  const replay = optionalText(fields, "replay_id");
  if (replay === undefined) return {};
  if (!REPLAY.test(replay)) throw new TypeError("`replay_id` is not the id of a replay");
  return { replay_id: replay };
}

function integer(fields: Fields, name: string, least: number, most: number, otherwise?: number): number {
  const value = fields[name] ?? otherwise;
  if (!Number.isInteger(value) || (value as number) < least || (value as number) > most)
    throw new TypeError(`\`${name}\` is not a whole number from ${least} to ${most}`);
  return value as number;
}

/** Whether it is nested too deep for JSON.stringify. Most values have too few brackets to be checked. */
function isTooDeep(bytes: Buffer, value: unknown): boolean {
  let brackets = 0;
  for (const byte of bytes) if (byte === ARRAY || byte === OBJECT) brackets++;
  return brackets > MAX_DEPTH && isDeeper(value, MAX_DEPTH);
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((each) => isDeeper(each, levels - 1));
}

function named(id: string | undefined): string | undefined {
  return id !== undefined && LETTER_ID.test(id) ? id : undefined;
}

/** The timestamp of a record. A producer may set any. */
function writtenAt({ timestamp }: Pick<KafkaRecord, "timestamp">): number {
  const at = Number(timestamp);
  return at >= 0 && at <= MAX_TIME ? at : 0;
}

/** The id of a letter written without one: the same at every read. */
function idOf(position: RecordPosition): string {
  const hex = sha256(positionText(position));
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
