import { may, notFound } from "../access/access.ts";
import type { Database } from "../database/database.ts";
import { inheritedOf } from "./forks.ts";
import { findStream, NOW, type StreamRow, streamOf } from "./pages.ts";
import { type Fork, mediaType, type Stream, type StreamConfig, type StreamName } from "./stream.ts";

/** The batch sizes of a sweep. */
const SWEEP_STREAMS = 100;
const SWEEP_PRODUCERS = 1_000;
/** After this many idle days a producer's state is forgotten. */
const PRODUCER_DAYS = 7;
/** Retries when an existing stream is deleted between the insert and the read. */
const MAX_ATTEMPTS = 3;

/**
 * Creates a stream, or finds one with the same configuration; undefined when it exists with another one. A path is unique
 * within its org, so one that another subject owns is not_found.
 */
export async function createStream(
  database: Database,
  name: StreamName,
  config: StreamConfig,
  data: Buffer,
  fork?: Fork,
): Promise<{ stream: Stream; created: boolean } | undefined> {
  for (let attempt = 1; ; attempt++) {
    const stream = await insertStream(database, name, config, data, fork);
    if (stream) return { stream, created: true };
    const found = await findStream(database, name);
    if (found && !may(name.caller, "durable_stream.write", { org: name.caller.org, owner: found.owner }))
      throw notFound("stream", name.path);
    if (found)
      return !found.gone && sameConfig(found, config, fork) ? { stream: found, created: false } : undefined;
    if (attempt === MAX_ATTEMPTS) throw new Error("the stream was deleted at every attempt to create it");
  }
}

async function insertStream(
  database: Database,
  { caller: { org, subject }, path }: StreamName,
  { contentType, ttlS, expiresAt, closed }: StreamConfig,
  data: Buffer,
  fork: Fork | undefined,
): Promise<Stream | undefined> {
  const [, rows] = await database.transaction([
    {
      name: "durable_streams_drop_expired",
      text: "DELETE FROM runtime.durable_streams WHERE org_id = $1 AND path = $2 AND dies_at <= clock_timestamp()",
      values: [org, path],
    },
    {
      name: "durable_streams_create",
      text: `WITH stream AS (
          INSERT INTO runtime.durable_streams
            (org_id, path, content_type, ttl_s, expires_at, closed, tail, written_at, dies_at, owner,
              forked_from, fork_request, inherited)
          VALUES ($1, $2, $3, $4::bigint, $5, $6, $11::bigint + octet_length($7::bytea),
            CASE WHEN octet_length($7::bytea) > 0 THEN ${NOW} ELSE coalesce((
              SELECT written_at FROM runtime.durable_stream_chunks WHERE stream_id = $10 AND $11 > 0 AND position >= $11
              ORDER BY position LIMIT 1), 0) END,
            coalesce($8::timestamptz, clock_timestamp() + $4::bigint * interval '1 second'), $9, $10, $12, $13)
          ON CONFLICT (org_id, path) DO NOTHING
          RETURNING id, owner, content_type, ttl_s, expires_at, closed, tail, written_at, gone, fork_request, inherited
        ), chunk AS (
          INSERT INTO runtime.durable_stream_chunks (stream_id, position, data, written_at)
          SELECT id, tail, $7::bytea, written_at FROM stream WHERE octet_length($7::bytea) > 0
        ), copied AS (
          -- The last chunk may reach beyond the fork.
          INSERT INTO runtime.durable_stream_chunks (stream_id, position, data, written_at)
          SELECT stream.id, least(chunk.position, $11), substring(chunk.data FOR
            (octet_length(chunk.data) - greatest(chunk.position - $11, 0))::integer), chunk.written_at
          FROM stream JOIN runtime.durable_stream_chunks AS chunk ON chunk.stream_id = $10
          WHERE $11 > 0 AND chunk.position <= (
            SELECT min(position) FROM runtime.durable_stream_chunks WHERE stream_id = $10 AND position >= $11)
        )
        SELECT * FROM stream`,
      values: [
        org,
        path,
        contentType,
        ttlS ?? null,
        expiresAt ?? null,
        closed,
        data,
        expiresAt === undefined ? null : new Date(expiresAt),
        subject,
        fork?.source.id ?? null,
        fork?.at ?? 0n,
        fork?.request ?? null,
        JSON.stringify((fork ? inheritedOf(fork) : []).map((of) => [of.stream, of.position].map(String))),
      ],
    },
  ]);
  const [row] = rows as unknown[];
  return row ? streamOf(row as StreamRow) : undefined;
}

function sameConfig(stream: Stream, config: StreamConfig, fork: Fork | undefined): boolean {
  return (
    stream.forkRequest === fork?.request &&
    mediaType(stream.contentType) === mediaType(config.contentType) &&
    stream.ttlS === config.ttlS &&
    stream.expiresAt === config.expiresAt &&
    stream.closed === config.closed
  );
}

/**
 * Removes a stream; returns its id, or undefined when there is none that the caller may delete. One with forks is hidden, but its
 * path stays in use until they are removed too.
 */
export async function removeStream(
  database: Database,
  name: StreamName,
): Promise<bigint | "gone" | undefined> {
  const { org } = name.caller;
  const found = await findStream(database, name);
  if (!found || !may(name.caller, "durable_stream.delete", { org, owner: found.owner })) return undefined;
  if (found.gone) return "gone";
  // By its id: another one may have its path by now.
  const [kept] = await database.query<{ id: bigint }>({
    name: "durable_streams_hide",
    text: `UPDATE runtime.durable_streams AS stream SET gone = true
      WHERE org_id = $1 AND id = $2 AND NOT gone AND EXISTS (
        SELECT FROM runtime.durable_streams AS fork WHERE fork.org_id = $1 AND fork.forked_from = stream.id)
      RETURNING id`,
    values: [org, found.id],
  });
  if (kept) return kept.id;
  const [row] = await database.query<{ id: bigint; alive: boolean; forked_from: bigint | null }>({
    name: "durable_streams_remove",
    text: `DELETE FROM runtime.durable_streams WHERE org_id = $1 AND id = $2
      RETURNING id, dies_at IS NULL OR dies_at > clock_timestamp() AS alive, forked_from`,
    values: [org, found.id],
  });
  for (let from = row?.forked_from ?? null; from !== null; ) from = await removeGone(database, org, from);
  return row?.alive ? row.id : undefined;
}

/** Removes a stream that was kept for its forks, once there are none. Returns the one that it was forked from itself. */
async function removeGone(database: Database, org: string, id: bigint): Promise<bigint | null> {
  const [row] = await database.query<{ forked_from: bigint | null }>({
    name: "durable_streams_remove_gone",
    text: `DELETE FROM runtime.durable_streams AS stream
      WHERE org_id = $1 AND id = $2 AND gone AND NOT EXISTS (
        SELECT FROM runtime.durable_streams AS fork WHERE fork.org_id = $1 AND fork.forked_from = stream.id)
      RETURNING forked_from`,
    values: [org, id],
  });
  return row?.forked_from ?? null;
}

/** Removes a batch of expired streams and producers; true when there may be more. */
export async function sweep(database: Database): Promise<boolean> {
  // Arrays make the planner look the rows up by key, even without statistics.
  const streams = await database.query({
    name: "durable_streams_sweep",
    text: `DELETE FROM runtime.durable_streams WHERE id = ANY (ARRAY(
        SELECT id FROM runtime.durable_streams WHERE dies_at <= now()
        ORDER BY dies_at LIMIT $1 FOR UPDATE SKIP LOCKED))
      RETURNING id`,
    values: [SWEEP_STREAMS],
  });
  // Forks may have expired, too.
  const gone = await database.query({
    name: "durable_streams_sweep_gone",
    text: `DELETE FROM runtime.durable_streams WHERE id = ANY (ARRAY(
        SELECT id FROM runtime.durable_streams AS stream WHERE gone AND NOT EXISTS (
          SELECT FROM runtime.durable_streams AS fork
          WHERE fork.org_id = stream.org_id AND fork.forked_from = stream.id)
        LIMIT $1 FOR UPDATE SKIP LOCKED))
      RETURNING id`,
    values: [SWEEP_STREAMS],
  });
  const producers = await database.query({
    name: "durable_streams_sweep_producers",
    text: `DELETE FROM runtime.durable_stream_producers WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM runtime.durable_stream_producers WHERE updated_at < now() - $1 * interval '1 day'
        ORDER BY updated_at LIMIT $2 FOR UPDATE SKIP LOCKED))
      RETURNING stream_id`,
    values: [PRODUCER_DAYS, SWEEP_PRODUCERS],
  });
  return streams.length === SWEEP_STREAMS || gone.length > 0 || producers.length === SWEEP_PRODUCERS;
}
