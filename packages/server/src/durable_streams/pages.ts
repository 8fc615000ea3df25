import { may } from "../access/access.ts";
import type { Database } from "../database/database.ts";
import type { Offset } from "./offset.ts";
import { isJson, type Stream, type StreamName } from "./stream.ts";

/** A page of a stream. */
export interface Page {
  readonly stream: Stream;
  /** The bytes after the requested position; in a JSON stream, messages separated by commas. */
  readonly data: Buffer;
  /** The position after them. */
  readonly end: bigint;
  /** The time of the append that ends there. */
  readonly writtenAt: bigint;
  /** Whether the requested position is the end of an append of that time, as it was when an offset was given out. */
  readonly known: boolean;
}

/** The size of a page, unless a single append is larger. */
const PAGE_BYTES = 1n << 20n;

const ALIVE = "(dies_at IS NULL OR dies_at > clock_timestamp())";
const COLUMNS =
  "id, owner, content_type, ttl_s, expires_at, closed, tail, written_at, gone, fork_request, inherited";

/** The time of an append, in microseconds. */
export const NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/** A character that a page does not begin may take so many bytes away from its end. */
const CUT_BYTES = 3;

/** The condition that an offset's append is in the stream. A restored database may have another one at its position. */
export const isWritten = (stream: string, position: string, writtenAt: string): string =>
  `(${position} = 0 OR EXISTS (SELECT FROM runtime.durable_stream_chunks AS known WHERE known.stream_id = ${stream}
    AND known.position BETWEEN ${position} AND ${position} + ${CUT_BYTES} AND known.written_at = ${writtenAt}))`;

/** A row of `durable_streams`. */
export interface StreamRow {
  id: bigint;
  owner: string;
  content_type: string;
  ttl_s: bigint | null;
  expires_at: string | null;
  closed: boolean;
  tail: bigint;
  written_at: bigint;
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
    writtenAt: row.written_at,
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
  { position: after, writtenAt }: Pick<Offset, "position" | "writtenAt">,
): Promise<Page | undefined> {
  const { org } = caller;
  const [row] = await database.query<PageRow>({
    name: "durable_streams_page",
    text: `SELECT ${COLUMNS}, page.*, ${isWritten("stream.id", "$3::bigint", "$5::bigint")} AS known FROM runtime.durable_streams AS stream
      CROSS JOIN LATERAL (
        SELECT max(position) AS ends_at, max(written_at) AS page_written_at, string_agg(data, CASE btrim(lower(split_part(content_type, ';', 1)))
          WHEN 'application/json' THEN ','::bytea ELSE ''::bytea END ORDER BY position) AS data
        FROM runtime.durable_stream_chunks
        WHERE stream_id = stream.id AND position > $3 AND position <= greatest($3 + $4, (
          SELECT min(position) FROM runtime.durable_stream_chunks WHERE stream_id = stream.id AND position > $3))
      ) AS page
      WHERE org_id = $1 AND path = $2 AND ${ALIVE}`,
    values: [org, path, after, PAGE_BYTES, writtenAt],
  });
  if (!row || !may(caller, "durable_stream.read", { org, owner: row.owner })) return undefined;
  const stream = streamOf(row);
  if (stream.ttlS !== undefined) await keepAlive(database, stream.id);
  const { known, data, ends_at: end, page_written_at: endWrittenAt } = row;
  if (!data || end === null || endWrittenAt === null)
    return { stream, known, data: Buffer.alloc(0), end: stream.tail, writtenAt: stream.writtenAt };
  const isWhole = isJson(stream.contentType);
  return { stream, known, data: isWhole ? data : rest(data, end, after), end, writtenAt: endWrittenAt };
}

interface PageRow extends StreamRow {
  readonly known: boolean;
  readonly data: Buffer | null;
  readonly ends_at: bigint | null;
  readonly page_written_at: bigint | null;
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
