import type { Database } from "../database/database.ts";
import { isJson, type Stream, type StreamName } from "./stream.ts";

/** What is read of a stream at once. */
export interface Page {
  readonly stream: Stream;
  /** The bytes after the position that was asked for; of a JSON stream, messages with commas between them. */
  readonly data: Buffer;
  /** Where they end. */
  readonly end: bigint;
}

/** As much as one read answers with, unless a single append was larger. */
const PAGE_BYTES = 1n << 20n;

const ALIVE = "(dies_at IS NULL OR dies_at > clock_timestamp())";
const COLUMNS = "id, content_type, ttl_s, expires_at, closed, tail";

/** A row of the streams. */
export interface StreamRow {
  id: bigint;
  content_type: string;
  ttl_s: bigint | null;
  expires_at: string | null;
  closed: boolean;
  tail: bigint;
}

/** A stream as its row says it. */
export function streamOf(row: StreamRow): Stream {
  return {
    id: row.id,
    contentType: row.content_type,
    ttlS: row.ttl_s ?? undefined,
    expiresAt: row.expires_at ?? undefined,
    closed: row.closed,
    tail: row.tail,
  };
}

/** The stream as it is now, without counting as a read. */
export async function findStream(
  database: Pick<Database, "query">,
  { org, path }: StreamName,
): Promise<Stream | undefined> {
  const [row] = await database.query<StreamRow>({
    name: "durable_streams_find",
    text: `SELECT ${COLUMNS} FROM runtime.durable_streams WHERE org_id = $1 AND path = $2 AND ${ALIVE}`,
    values: [org, path],
  });
  return row && streamOf(row);
}

/** What comes after a position, and the stream at the same moment. */
export async function readPage(
  database: Database,
  { org, path }: StreamName,
  after: bigint,
): Promise<Page | undefined> {
  const [row] = await database.query<StreamRow & { data: Buffer | null; ends_at: bigint | null }>({
    name: "durable_streams_page",
    text: `SELECT ${COLUMNS}, page.data, page.ends_at FROM runtime.durable_streams AS stream
      CROSS JOIN LATERAL (
        SELECT max(position) AS ends_at, string_agg(data, CASE btrim(lower(split_part(content_type, ';', 1)))
          WHEN 'application/json' THEN ','::bytea ELSE ''::bytea END ORDER BY position) AS data
        FROM runtime.durable_stream_chunks
        WHERE stream_id = stream.id AND position > $3 AND position <= greatest($3 + $4, (
          SELECT min(position) FROM runtime.durable_stream_chunks WHERE stream_id = stream.id AND position > $3))
      ) AS page
      WHERE org_id = $1 AND path = $2 AND ${ALIVE}`,
    values: [org, path, after, PAGE_BYTES],
  });
  if (!row) return undefined;
  const stream = streamOf(row);
  if (stream.ttlS !== undefined) await keepAlive(database, stream.id);
  if (!row.data || row.ends_at === null) return { stream, data: Buffer.alloc(0), end: stream.tail };
  return {
    stream,
    data: isJson(stream.contentType) ? row.data : rest(row.data, row.ends_at, after),
    end: row.ends_at,
  };
}

/** Chunks are stored whole, and a reader may be in the middle of one. */
function rest(data: Buffer, end: bigint, after: bigint): Buffer {
  const begin = end - BigInt(data.length);
  return after > begin ? data.subarray(Number(after - begin)) : data;
}

/** A read restarts the time to live. Most readers follow another closely: only a move that is worth it is written. */
async function keepAlive(database: Database, id: bigint): Promise<void> {
  await database.query({
    name: "durable_streams_keep_alive",
    text: `UPDATE runtime.durable_streams SET dies_at = clock_timestamp() + ttl_s * interval '1 second'
      WHERE id = $1 AND dies_at < clock_timestamp() + ttl_s * interval '0.95 seconds' AND dies_at > clock_timestamp()`,
    values: [id],
  });
}
