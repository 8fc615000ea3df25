import type { Database, Statement } from "../../database/database.ts";
import { type StreamName, streamKey } from "../../events/authority.ts";
import type { AuthorityEvent } from "../../events/stream.ts";
import type { BrokenProjection } from "./projection.ts";

/** A connection, inside a transaction or not. */
type Connection = Pick<Database, "query">;

/** A stream that a projection has set aside, from its event `seq` on. */
export interface FailedStream extends StreamName {
  readonly seq: bigint;
  readonly position: bigint;
  readonly error: string;
}

const MAX_ERROR = 2_000;
/** Counts are exact up to here. */
const COUNTED = 10_000;

/** The streams of these events that are set aside, by `streamKey`. */
export async function pausedStreams(
  database: Connection,
  topic: string,
  rebuilt: boolean,
  events: readonly AuthorityEvent[],
): Promise<Set<string>> {
  const streams = [...new Map(events.map((event) => [streamKey(event), event])).values()];
  const rows = await database.query<StreamName>({
    name: "sync_paused_streams",
    text: `SELECT f.org_id AS org, f.kind, f.stream_id AS "streamId"
      FROM unnest($3::text[], $4::text[], $5::text[]) AS i(org_id, kind, stream_id)
      JOIN runtime.sync_failed_streams f ON f.topic = $1 AND f.rebuilt = $2
        AND f.org_id = i.org_id AND f.kind = i.kind AND f.stream_id = i.stream_id`,
    values: [topic, rebuilt, ...columns(streams)],
  });
  return new Set(rows.map(streamKey));
}

/** Sets the streams of failed events aside. */
export function setAside(topic: string, rebuilt: boolean, failures: readonly BrokenProjection[]): Statement {
  const events = failures.map(({ event }) => event);
  return {
    name: "sync_set_aside",
    text: `INSERT INTO runtime.sync_failed_streams (topic, rebuilt, org_id, kind, stream_id, seq, position, error)
      SELECT $1, $2, i.* FROM unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[]) AS i
      ON CONFLICT DO NOTHING`,
    values: [
      topic,
      rebuilt,
      ...columns(events),
      events.map(({ seq }) => seq),
      events.map(({ position }) => position),
      failures.map(errorText),
    ],
  };
}

/** The error as the database can store it. */
export function errorText({ message }: BrokenProjection): string {
  return message.slice(0, MAX_ERROR).toWellFormed().replaceAll("\0", "\uFFFD");
}

/** The number of streams a topic has set aside; `COUNTED` when there are more. */
export async function countFailedStreams(database: Connection, topic: string): Promise<number> {
  const [row] = await database.query<{ count: number }>({
    name: "sync_count_failed",
    text: `SELECT count(*)::int AS count FROM (
        SELECT 1 FROM runtime.sync_failed_streams WHERE topic = $1 AND NOT rebuilt LIMIT ${COUNTED}
      ) counted`,
    values: [topic],
  });
  return row!.count;
}

/**
 * The streams whose last try is longest ago, as tried now. None while the topic is rebuilt: the rebuilt documents contain
 * their events already, and would get them twice.
 */
export function takeFailedStreams(
  database: Connection,
  topic: string,
  limit: number,
): Promise<FailedStream[]> {
  return database.query<FailedStream>({
    name: "sync_take_failed",
    text: `WITH due AS (
        SELECT org_id, kind, stream_id FROM runtime.sync_failed_streams
        WHERE topic = $1 AND NOT rebuilt AND NOT EXISTS (SELECT FROM runtime.sync_reprojections r WHERE r.topic = $1)
        ORDER BY tried_at LIMIT $2
      )
      UPDATE runtime.sync_failed_streams f SET tried_at = clock_timestamp() FROM due
      WHERE f.topic = $1 AND NOT f.rebuilt AND f.org_id = due.org_id AND f.kind = due.kind AND f.stream_id = due.stream_id
      RETURNING f.org_id AS org, f.kind, f.stream_id AS "streamId", f.seq, f.position, f.error`,
    values: [topic, limit],
  });
}

/** Ends the pause of a stream whose events are all projected. */
export function resumeStream(topic: string, { org, kind, streamId }: StreamName): Statement {
  return {
    name: "sync_resume_stream",
    text: `DELETE FROM runtime.sync_failed_streams
      WHERE topic = $1 AND NOT rebuilt AND org_id = $2 AND kind = $3 AND stream_id = $4`,
    values: [topic, org, kind, streamId],
  };
}

/** Some events of a stream are projected: it is paused from a later one on. */
export function movePause(
  topic: string,
  { org, kind, streamId, seq, position, error }: FailedStream,
): Statement {
  return {
    name: "sync_move_pause",
    text: `UPDATE runtime.sync_failed_streams SET seq = $5, position = $6, error = $7
      WHERE topic = $1 AND NOT rebuilt AND org_id = $2 AND kind = $3 AND stream_id = $4`,
    values: [topic, org, kind, streamId, seq, position, error],
  };
}

/** A stream that is set aside, as operators see it. */
export interface FailedStreamReport extends FailedStream {
  readonly topic: string;
  readonly failedAt: Date;
}

/** Streams that are set aside, of one org or of all, after the last of the page before; oldest first. */
export function listFailedStreams(
  database: Connection,
  topics: readonly string[],
  {
    org,
    after,
    limit,
  }: { org: string | undefined; after: { position: bigint; topic: string }; limit: number },
): Promise<FailedStreamReport[]> {
  return database.query<FailedStreamReport>({
    text: `SELECT topic, org_id AS org, kind, stream_id AS "streamId", seq, position, error, failed_at AS "failedAt"
      FROM runtime.sync_failed_streams
      WHERE NOT rebuilt AND topic = ANY($1) AND ($2::text IS NULL OR org_id = $2) AND (position, topic) > ($3, $4)
      ORDER BY position, topic LIMIT $5`,
    values: [topics, org ?? null, after.position, after.topic, limit],
  });
}

function columns(streams: readonly StreamName[]): string[][] {
  return [
    streams.map(({ org }) => org),
    streams.map(({ kind }) => kind),
    streams.map(({ streamId }) => streamId),
  ];
}
