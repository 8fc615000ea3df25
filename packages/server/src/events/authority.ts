import type { JsonValue } from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";
import { notFound } from "../access/access.ts";
import { commitEach } from "../database/commit_each.ts";
import type { Database } from "../database/database.ts";
import type { Clock } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import { GroupCommit, type Outcome } from "../kit/group_commit.ts";
import { invalid } from "../kit/invalid.ts";
import { checkEventData } from "./event_schema.ts";
import type { AuthorityEvent, ProposedEvent, StreamDefinition, StreamEvent } from "./stream.ts";

/** An event that a caller wants appended. */
export interface NewEvent {
  readonly event_id: string;
  readonly type: string;
  readonly data?: JsonValue;
}

export interface Append {
  readonly stream: StreamDefinition;
  readonly streamId: string;
  /** The sequence that the stream must be at; undefined appends wherever it is. */
  readonly expectedSeq?: bigint;
  readonly events: readonly NewEvent[];
  readonly org: string;
  readonly actor: string;
  /** Whether a stream that another actor owns refuses it. Default: the server itself appends to any stream of the org. */
  readonly ownerOnly?: boolean;
  /** Throws if the actor may not append a valid event. */
  readonly authorize?: (event: ProposedEvent) => void;
  /** W3C traceparent of the caller. */
  readonly trace?: string;
}

/** The name of a stream. Every org has ids of its own. */
export interface StreamName {
  readonly org: string;
  readonly kind: string;
  readonly streamId: string;
}

/** Identifies a stream in a map. Kinds and ids have no space. */
export function streamKey({ org, kind, streamId }: StreamName): string {
  return `${kind} ${streamId} ${org}`;
}

/** The creator of a stream, and the sequence of its newest event. */
export interface StreamHead {
  readonly owner: string;
  readonly seq: bigint;
}

/** The authority log. */
export interface Authority {
  /** Appends all events or none; resolves with the sequence of the last one, after the commit. */
  append(request: Append): Promise<bigint>;
  /** Events after a position, in order, at most `limit`. */
  read(after: bigint, limit: number): Promise<readonly AuthorityEvent[]>;
  /** The owner and the sequence of a stream; undefined when the org has no such stream. */
  find(stream: StreamName): Promise<StreamHead | undefined>;
  /** The events of a stream after a sequence, in order, at most `limit`. */
  readStream(stream: StreamName, after: bigint, limit: number): Promise<readonly StreamEvent[]>;
  /** The newest position. */
  head(): Promise<bigint>;
  /** Calls `listener` after each commit, failed ones too: a connection may be lost after the commit. It may be called for nothing. */
  onAppend(listener: () => void): void;
  /** Resolves when every append so far is answered. */
  drain(): Promise<void>;
}

const MAX_EVENTS = 1_000;
const ID = /^[\w.:@-]{1,200}$/;
/**
 * NUL and lone surrogates: valid in JSON, but not storable in a document or key. Refused here, because a projection would
 * stop at them. JSON.stringify writes both as escapes, after an even number of backslashes.
 */
const UNSTORABLE = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/;

/** Whether a stream can have this id. */
export function isStreamId(id: string): boolean {
  return ID.test(id);
}

interface Prepared {
  readonly request: Append;
  readonly data: readonly string[];
  readonly bytes: number;
}

/** Opens the authority log. */
export function openAuthority(database: Database, context: Context): Authority {
  const listeners: (() => void)[] = [];
  const queue = new GroupCommit<Prepared, bigint>({
    commit: (batch) =>
      // Event ids make a commit idempotent.
      commitEach(context, batch, { commit: (some) => commit(database, some), isIdempotent: true }).finally(
        () => {
          for (const listener of listeners) listener();
        },
      ),
    sizeOf: (item) => item.bytes,
    maxItems: 512,
    maxBytes: 4 << 20,
    maxWaitingBytes: 64 << 20,
    exclusiveKey: (item) => `${item.request.stream.kind} ${item.request.streamId} ${item.request.org}`,
  });

  // Projectors that wake in one turn of the event loop are at the same position: they share one query. Later ones do not: it
  // may have begun before the commit that woke them.
  const reading = new Map<string, Promise<readonly AuthorityEvent[]>>();

  return {
    append: async (request) => queue.write(await prepare(request, context.clock)),
    onAppend(listener) {
      listeners.push(listener);
    },
    drain: () => queue.drain(),

    async head() {
      const [row] = await database.query<{ position: bigint }>({
        text: "SELECT position FROM runtime.event_log_head",
      });
      return row!.position;
    },

    async find({ org, kind, streamId }) {
      const [row] = await database.query<StreamHead>({
        name: "authority_stream",
        text: "SELECT owner, seq FROM runtime.event_streams WHERE org_id = $1 AND kind = $2 AND stream_id = $3",
        values: [org, kind, streamId],
      });
      return row;
    },

    readStream: (stream, after, limit) => readStream(database, stream, after, limit),

    read(after, limit) {
      const key = `${after} ${limit}`;
      let read = reading.get(key);
      if (!read) {
        read = readEvents(database, after, limit);
        reading.set(key, read);
        setImmediate(() => reading.delete(key));
      }
      return read;
    },
  };
}

const EVENT = `e.position, e.kind, e.stream_id AS "streamId", e.seq, e.type, e.data, e.org_id AS org, e.owner, e.actor,
  e.trace, to_char(e.inserted_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at`;

/** The events of a stream after a sequence. The index finds their positions without reading the events before. */
export function readStream(
  database: Pick<Database, "query">,
  { org, kind, streamId }: StreamName,
  after: bigint,
  limit: number,
): Promise<readonly StreamEvent[]> {
  return database.query<StreamEvent>({
    name: "authority_read_stream",
    text: `SELECT ${EVENT}, e.event_id AS "eventId" FROM (
        SELECT position FROM runtime.events
        WHERE org_id = $1 AND kind = $2 AND stream_id = $3 AND seq > $4 ORDER BY seq LIMIT $5
      ) page JOIN runtime.events e ON e.position = page.position ORDER BY e.position`,
    values: [org, kind, streamId, after, limit],
  });
}

/** Events after a position, on any connection, also within a transaction. */
export function readEvents(
  database: Pick<Database, "query">,
  after: bigint,
  limit: number,
): Promise<readonly AuthorityEvent[]> {
  return database.query<AuthorityEvent>({
    name: "authority_read",
    text: `SELECT ${EVENT} FROM runtime.events e WHERE position > $1 ORDER BY position LIMIT $2`,
    values: [after, limit],
  });
}

/** Validates a request before it shares a transaction with others. */
async function prepare(request: Append, clock: Clock): Promise<Prepared> {
  const { stream, streamId, events } = request;
  if (!isStreamId(streamId))
    throw invalid(`${stream.kind}_id`, "An id must have 1 to 200 letters, digits or . _ : @ -");
  if (events.length === 0) throw invalid("events", "Send at least one event.");
  if (events.length > MAX_EVENTS)
    throw invalid("events", `Send at most ${MAX_EVENTS} events at once, not ${events.length}.`);
  const seen = new Set<string>();
  const data: string[] = [];
  for (const [i, event] of events.entries()) {
    if (!ID.test(event.event_id))
      throw invalid(`events[${i}].event_id`, "An event_id must have 1 to 200 letters, digits or . _ : @ -");
    if (seen.has(event.event_id))
      throw invalid(
        `events[${i}].event_id`,
        `The event_id "${event.event_id}" is used twice in this request.`,
      );
    seen.add(event.event_id);
    const checked = checkEventData(stream, event.type, event.data ?? {}, `events[${i}]`, clock);
    const stored = checked instanceof Promise ? await checked : checked;
    request.authorize?.({ type: event.type, data: stored });
    const text = textOf(stored, event.type);
    if (UNSTORABLE.test(text))
      throw invalid(
        `events[${i}].data`,
        "A string may not contain a NUL character or half of a surrogate pair.",
      );
    data.push(text);
  }
  return { request, data, bytes: data.reduce((sum, text) => sum + text.length + 200, 0) };
}

/** A schema may return what it did not receive, such as a bigint. */
function textOf(data: unknown, type: string): string {
  const text = typeof data === "object" && data !== null ? JSON.stringify(data) : undefined;
  if (text === undefined) throw new TypeError(`The schema of "${type}" must return a JSON object.`);
  return text;
}

interface Answer {
  readonly request: number;
  readonly outcome: "appended" | "repeated" | "conflict" | "duplicate" | "changed" | "foreign";
  readonly seq: bigint;
}

/** Arrays of columns travel faster than arrays of rows, whose texts would be escaped twice. */
const APPEND = `SELECT * FROM runtime.append_in_order(
  ARRAY(
    SELECT ROW(r.*)::runtime.append_request
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::int[], $8::boolean[]) AS r
  ),
  ARRAY(
    SELECT ROW(e.*)::runtime.append_event FROM unnest($9::int[], $10::int[], $11::text[], $12::text[], $13::text[]) AS e
  )
)`;

async function commit(database: Database, batch: readonly Prepared[]): Promise<Outcome[]> {
  const requests = batch.map((item) => item.request);
  const statement = {
    name: "append_in_order",
    text: APPEND,
    values: [
      requests.map((r) => r.stream.kind),
      requests.map((r) => r.streamId),
      requests.map((r) => r.expectedSeq ?? null),
      requests.map((r) => r.org),
      requests.map((r) => r.actor),
      requests.map((r) => r.trace ?? null),
      requests.map((r) => r.events.length),
      requests.map((r) => r.ownerOnly ?? false),
      requests.flatMap((r, i) => r.events.map(() => i + 1)),
      requests.flatMap((r) => r.events.map((_, nth) => nth + 1)),
      requests.flatMap((r) => r.events.map((e) => e.event_id)),
      requests.flatMap((r) => r.events.map((e) => e.type)),
      batch.flatMap((item) => item.data),
    ],
  };
  const answers = await database.query<Answer>(statement);
  const byRequest = new Map(answers.map((answer) => [answer.request, answer]));
  return batch.map((item, i) => outcome(item.request, byRequest.get(i + 1)!));
}

function outcome({ stream, streamId, expectedSeq }: Append, answer: Answer): Outcome {
  switch (answer.outcome) {
    case "appended":
    case "repeated":
      return { ok: answer.seq };
    case "foreign":
      return { error: notFound(stream.kind, streamId) };
    case "conflict": {
      const message = `The ${stream.kind} "${streamId}" is at sequence ${answer.seq}, not ${expectedSeq}. Read it again, then append.`;
      return { error: new KhalaError("sequence_conflict", message, { current_seq: String(answer.seq) }) };
    }
    case "changed": {
      const message =
        "The stream already has an event_id of this request, with another type or other data. Use a new event_id for a new event.";
      return { error: new KhalaError("event_conflict", message, { current_seq: String(answer.seq) }) };
    }
    case "duplicate": {
      const message =
        "Some of these event ids are already in the stream and some are not. Send only the new ones.";
      return { error: new KhalaError("event_conflict", message, { current_seq: String(answer.seq) }) };
    }
  }
}
