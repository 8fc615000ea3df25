import { artifactKey, recordKey } from "@khala/contracts";
import {
  type Artifact,
  type Context,
  type DeadLetter,
  type Failure,
  idempotencyKey,
  type RecordPosition,
  ROUTER,
  sha256,
  type Task,
} from "@khala/server/blackboard";
import type { NewRecord } from "../client/client_types.ts";
import {
  dueHeader,
  failureHeaders,
  HEADER,
  type Headers,
  indexHeader,
  type Origin,
  originHeaders,
} from "./record_headers.ts";

/** A record and its topic. */
export interface Outgoing {
  readonly topic: string;
  readonly record: NewRecord;
}

/** The `processed` entry of every task; its key is the task's idempotency key. */
export interface TaskEntry {
  readonly task_id: string;
  readonly agent: string;
  readonly replay_id?: string;
  readonly correlation_id?: string;
  readonly org_id: string;
  readonly attempt: number;
}

/** The `processed` entry of a settled task. */
export interface ProcessedEntry extends TaskEntry {
  readonly result: "done" | "dead";
  /** RFC 3339. */
  readonly at: string;
  readonly topic: string;
  readonly partition: number;
  readonly offset: string;
}

/** The `processed` entry of a task that waits in place for its next attempt. */
export interface WaitingEntry extends TaskEntry {
  /** Milliseconds since 1970. */
  readonly due_at: number;
}

const CLOSED = Buffer.from("]}");

/** An artifact in the log of artifacts. `json` spares writing it twice. */
export function artifactRecord(artifact: Artifact, json = JSON.stringify(artifact)): NewRecord {
  return {
    key: recordKey(artifact.org_id, artifactKey(artifact, sha256)),
    value: json,
    headers: { [HEADER.type]: artifact.type, ...trace(artifact.traceparent) },
  };
}

/** An artifact in the compacted index. Its summary is a header, so that readers need not parse it. */
export function byIdRecord(artifact: Artifact, json = JSON.stringify(artifact)): NewRecord {
  return { key: byIdKey(artifact.org_id, artifact.id), value: json, headers: indexHeader(artifact) };
}

/** The key of an artifact in the compacted index. */
export function byIdKey(org: string, id: string): string {
  return `${id.toLowerCase()}@${org}`;
}

/** A task in its agent's topic. `artifactJson` is that of its only artifact in UTF-8, and spares writing it again. */
export function taskRecord(task: Task, artifactJson?: Buffer): NewRecord {
  const value = artifactJson === undefined ? JSON.stringify(task) : around(task, artifactJson);
  return { key: keyOf(task), value, headers: taskHeaders(task) };
}

function around({ artifacts: _, ...rest }: Task, artifactJson: Buffer): Buffer {
  const before = Buffer.from(`${JSON.stringify(rest).slice(0, -1)},"artifacts":[`);
  return Buffer.concat([before, artifactJson, CLOSED]);
}

/** A task back in its agent's topic after a retry, with its original position. */
export function returnedRecord(task: Task, origin: Origin): NewRecord {
  const { headers, ...record } = taskRecord(task);
  return { ...record, headers: { ...headers, ...originHeaders(origin) } };
}

/** A task that waits in a retry topic until `dueAt`, with its failure. `task` is the next attempt. */
export function retryRecord(task: Task, failure: Failure, origin: Origin, dueAt: number): NewRecord {
  return {
    key: keyOf(task),
    value: JSON.stringify(task),
    headers: {
      ...taskHeaders(task),
      ...failureHeaders(failure, task.attempt - 1, origin),
      ...dueHeader(dueAt),
    },
  };
}

/** The mark of a settled task, in the task's partition, so that its owner reads only its own part. */
export function processedRecord(
  task: Task,
  result: "done" | "dead",
  position: RecordPosition,
  at: string,
): NewRecord {
  const entry: ProcessedEntry = { ...taskEntry(task), result, at, ...position };
  return { key: idempotencyKey(task), value: JSON.stringify(entry), partition: position.partition };
}

/** The mark of a task that waits in place, so that a crash does not lose it. `task` is the next attempt. */
export function waitingRecord(task: Task, dueAt: number, partition: number): NewRecord {
  const entry: WaitingEntry & { result: "waits" } = { ...taskEntry(task), result: "waits", due_at: dueAt };
  return { key: idempotencyKey(task), value: JSON.stringify(entry), partition };
}

function taskEntry({ id, agent, replay_id, attempt, artifacts: [artifact] }: Task): TaskEntry {
  const { correlation_id, org_id } = artifact;
  return {
    task_id: id,
    agent,
    ...(replay_id && { replay_id }),
    ...(correlation_id && { correlation_id }),
    org_id,
    attempt,
  };
}

/** The limit of undecodable bytes: a record larger than the board's own must still fit, with headers, into a dead letter. */
const MAX_RAW_BYTES = 1_048_576;
const MAX_RAW_KEY_BYTES = 4_096;

/**
 * A dead letter: the unchanged task, or its undecodable bytes, up to a limit, and everything else in headers. `raw` is
 * the record read, for a letter without a task.
 */
export function deadLetterRecord(
  letter: DeadLetter,
  origin: Origin,
  raw: { readonly key: Buffer | null; readonly value: Buffer | null } = { key: null, value: null },
): NewRecord {
  const { task } = letter;
  return {
    key: task ? keyOf(task) : (raw.key?.subarray(0, MAX_RAW_KEY_BYTES) ?? null),
    value: task ? JSON.stringify(task) : (raw.value?.subarray(0, MAX_RAW_BYTES) ?? null),
    // The topics of tasks have no other value.
    partition: 0,
    headers: {
      ...(task && taskHeaders(task)),
      ...failureHeaders(letter.failure, letter.attempts, origin),
      [HEADER.agent]: letter.agent,
      [HEADER.deadLetterId]: letter.id,
      [HEADER.failedAt]: letter.failed_at,
    },
  };
}

/** The dead letter of a record that the router or a retry topic cannot decode. */
export function unreadableRecord(
  { clock, newId }: Pick<Context, "clock" | "newId">,
  error: string,
  record: { readonly key: Buffer | null; readonly value: Buffer | null },
  position: RecordPosition,
  origin: Origin,
): NewRecord {
  const letter: DeadLetter = {
    id: newId(),
    agent: ROUTER,
    failure: { class: "UnreadableRecord", message: error, kind: "fatal" },
    attempts: 1,
    failed_at: new Date(clock.now()).toISOString(),
    origin: positionText(position),
  };
  return deadLetterRecord(letter, origin, record);
}

/** The position of a record as people write it: "flock.tasks.reviewer/3@1042". */
export function positionText({ topic, partition, offset }: RecordPosition): string {
  return `${topic}/${partition}@${offset}`;
}

/** The bytes of a record without its headers. */
export function sizeOf({ key, value }: NewRecord): number {
  return (key ? Buffer.byteLength(key) : 0) + (value ? Buffer.byteLength(value) : 0);
}

/** Refuses records larger than a task may be: a number may take more room than in the record read. */
export function refuseLarge(records: readonly Outgoing[], maxBytes: number): void {
  for (const { record } of records)
    if (sizeOf(record) > maxBytes)
      throw new RangeError(`Its record has ${sizeOf(record)} bytes; the limit is ${maxBytes}.`);
}

function keyOf({ key, artifacts: [{ org_id }] }: Task): string {
  return recordKey(org_id, key);
}

function taskHeaders(task: Task): Headers {
  const [artifact] = task.artifacts;
  return {
    [HEADER.type]: artifact.type,
    [HEADER.agent]: task.agent,
    [HEADER.org]: artifact.org_id,
    ...trace(artifact.traceparent),
  };
}

function trace(traceparent: string | undefined): Headers {
  return traceparent ? { [HEADER.traceparent]: traceparent } : {};
}
