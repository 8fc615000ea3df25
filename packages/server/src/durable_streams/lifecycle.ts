import { may, notFound } from "../access/access.ts";
import type { Database } from "../database/database.ts";
import { findStream, type StreamRow, streamOf } from "./pages.ts";
import { mediaType, type Stream, type StreamConfig, type StreamName } from "./stream.ts";

/** The batch sizes of a sweep. */
const SWEEP_STREAMS = 100;
const SWEEP_PRODUCERS = 1_000;
/** After this many idle days a producer's state is forgotten. */
const PRODUCER_DAYS = 7;
/** Retries when an existing stream is deleted between the insert and the read. */
const MAX_ATTEMPTS = 3;

/**
 * Creates a stream, or finds one with the same configuration; undefined when it exists with another one. A path is unique
 * within its org, so one that somebody else has taken is not_found.
 */
export async function createStream(
  database: Database,
  name: StreamName,
  config: StreamConfig,
  data: Buffer,
): Promise<{ stream: Stream; created: boolean } | undefined> {
  for (let attempt = 1; ; attempt++) {
    const stream = await insertStream(database, name, config, data);
    if (stream) return { stream, created: true };
    const found = await findStream(database, name);
    if (found && !may(name.caller, "durable_stream.write", { org: name.caller.org, owner: found.owner }))
      throw notFound("stream", name.path);
    if (found) return sameConfig(found, config) ? { stream: found, created: false } : undefined;
    if (attempt === MAX_ATTEMPTS) throw new Error("the stream was deleted at every attempt to create it");
  }
}

async function insertStream(
  database: Database,
  { caller: { org, subject }, path }: StreamName,
  { contentType, ttlS, expiresAt, closed }: StreamConfig,
  data: Buffer,
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
            (org_id, path, content_type, ttl_s, expires_at, closed, tail, dies_at, owner)
          VALUES ($1, $2, $3, $4::bigint, $5, $6, octet_length($7::bytea),
            coalesce($8::timestamptz, clock_timestamp() + $4::bigint * interval '1 second'), $9)
          ON CONFLICT (org_id, path) DO NOTHING
          RETURNING id, owner, content_type, ttl_s, expires_at, closed, tail
        ), chunk AS (
          INSERT INTO runtime.durable_stream_chunks (stream_id, position, data)
          SELECT id, tail, $7::bytea FROM stream WHERE tail > 0
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
      ],
    },
  ]);
  const [row] = rows as unknown[];
  return row ? streamOf(row as StreamRow) : undefined;
}

function sameConfig(stream: Stream, config: StreamConfig): boolean {
  return (
    mediaType(stream.contentType) === mediaType(config.contentType) &&
    stream.ttlS === config.ttlS &&
    stream.expiresAt === config.expiresAt &&
    stream.closed === config.closed
  );
}

/** Removes a stream; returns its id, or undefined when there is none that the caller may delete. */
export async function removeStream(database: Database, name: StreamName): Promise<bigint | undefined> {
  const { org } = name.caller;
  const found = await findStream(database, name);
  if (!found || !may(name.caller, "durable_stream.delete", { org, owner: found.owner })) return undefined;
  // By its id: another one may have its path by now.
  const [row] = await database.query<{ id: bigint; alive: boolean }>({
    name: "durable_streams_remove",
    text: `DELETE FROM runtime.durable_streams WHERE org_id = $1 AND id = $2
      RETURNING id, dies_at IS NULL OR dies_at > clock_timestamp() AS alive`,
    values: [org, found.id],
  });
  return row?.alive ? row.id : undefined;
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
  const producers = await database.query({
    name: "durable_streams_sweep_producers",
    text: `DELETE FROM runtime.durable_stream_producers WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM runtime.durable_stream_producers WHERE updated_at < now() - $1 * interval '1 day'
        ORDER BY updated_at LIMIT $2 FOR UPDATE SKIP LOCKED))
      RETURNING stream_id`,
    values: [PRODUCER_DAYS, SWEEP_PRODUCERS],
  });
  return streams.length === SWEEP_STREAMS || producers.length === SWEEP_PRODUCERS;
}
