import { may } from "../access/access.ts";
import type { Database } from "../database/database.ts";
import { isJson, type Stream, type StreamName } from "./stream.ts";

/** A page of a stream. */
export interface Page {
  readonly stream: Stream;
  /** The bytes after the requested position; in a JSON stream, messages separated by commas. */
  readonly data: Buffer;
  /** The position after them. */
  readonly end: bigint;
}

/** The size of a page, unless a single append is larger. */
const PAGE_BYTES = 1n << 20n;

const ALIVE = "(dies_at IS NULL OR dies_at > clock_timestamp())";
const COLUMNS = "id, owner, content_type, ttl_s, expires_at, closed, tail, gone, fork_request, inherited";

/** A row of `durable_streams`. */
export interface StreamRow {
  id: bigint;
  owner: string;
  content_type: string;
  ttl_s: bigint | null;
  expires_at: string | null;
  closed: boolean;
  tail: bigint;
  gone: boolean;
  fork_request: string | null;
  inherited: readonly [stream: string, position: string][];
}

/** Converts a row. */
export function streamOf(row: StreamRow): Stream {
  return {
    id: row.id,
    owner: row.owner,
    contentType: row.content_type,
    ttlS: row.ttl_s ?? undefined,
    expiresAt: row.expires_at ?? undefined,
    closed: row.closed,
    tail: row.tail,
    gone: row.gone,
    forkRequest: row.fork_request ?? undefined,
    inherited: row.inherited.map(([stream, position]) => ({
      stream: BigInt(stream),
      position: BigInt(position),
    })),
  };
}

/** The current stream, of any owner. Does not renew its time to live. */
export async function findStream(
  database: Pick<Database, "query">,
  { caller: { org }, path }: StreamName,
): Promise<Stream | undefined> {
  const [row] = await database.query<StreamRow>({
    name: "durable_streams_find",
    text: `SELECT ${COLUMNS} FROM runtime.durable_streams WHERE org_id = $1 AND path = $2 AND ${ALIVE}`,
    values: [org, path],
  });
  return row && streamOf(row);
}

/** The page after a position, and the stream at that moment; undefined when there is none that the caller may read. */
export async function readPage(
  database: Database,
  { caller, path }: StreamName,
  after: bigint,
): Promise<Page | undefined> {
  const { org } = caller;
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
  if (!row || !may(caller, "durable_stream.read", { org, owner: row.owner })) return undefined;
  const stream = streamOf(row);
  if (stream.ttlS !== undefined) await keepAlive(database, stream.id);
  if (!row.data || row.ends_at === null) return { stream, data: Buffer.alloc(0), end: stream.tail };
  return {
    stream,
    data: isJson(stream.contentType) ? row.data : rest(row.data, row.ends_at, after),
    end: row.ends_at,
  };
}

/** Chunks are stored whole, and a reader may start within one. */
function rest(data: Buffer, end: bigint, after: bigint): Buffer {
  const begin = end - BigInt(data.length);
  return after > begin ? data.subarray(Number(after - begin)) : data;
}

/** A read renews the time to live. Skips the write while less than 5 % of it has passed. */
async function keepAlive(database: Database, id: bigint): Promise<void> {
  await database.query({
    name: "durable_streams_keep_alive",
    text: `UPDATE runtime.durable_streams SET dies_at = clock_timestamp() + ttl_s * interval '1 second'
      WHERE id = $1 AND dies_at < clock_timestamp() + ttl_s * interval '0.95 seconds' AND dies_at > clock_timestamp()`,
    values: [id],
  });
}
