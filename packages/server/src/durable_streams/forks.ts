import { KhalaError } from "@khala/contracts";
import type { Database } from "../database/database.ts";
import { messagesLength } from "./json_mode.ts";
import type { Offset } from "./offset.ts";
import { isWritten } from "./pages.ts";
import { type Fork, type Inherited, isJson, type Stream } from "./stream.ts";

/** A fork copies the data it inherits, in one statement. */
const MAX_INHERITED_BYTES = 64n << 20n;

/** A fork as it is asked for: a source, an offset of it, and how much of the append after that offset. */
export interface ForkRequest {
  /** The path of the source. */
  readonly from: string;
  /** The source's end when undefined. */
  readonly offset: Offset | undefined;
  /** Bytes, or messages of a JSON stream. */
  readonly sub: bigint;
}

/** The position at which a fork leaves its source. */
export async function forkOf(database: Database, source: Stream, request: ForkRequest): Promise<Fork> {
  const { offset, sub } = request;
  const begin = offset === undefined ? source.tail : positionIn(source, offset);
  if (begin === undefined || (offset && !(await isKnown(database, source, offset))))
    throw new KhalaError("invalid_request", "Stream-Fork-Offset must be -1, or an offset of the source.", {
      field: "stream-fork-offset",
    });
  const at = sub === 0n ? begin : begin + (await lengthWithin(database, source, begin, sub));
  if (at > MAX_INHERITED_BYTES)
    throw new KhalaError(
      "payload_too_large",
      `A fork may inherit at most ${MAX_INHERITED_BYTES} bytes. Fork at an earlier offset.`,
      {
        field: "stream-fork-offset",
      },
    );
  return { source, at, request: JSON.stringify([source.id, begin, sub].map(String)) };
}

/** The position of an offset in a stream, which may be one of a stream that it was forked from; undefined when it is in none. */
export function positionIn(stream: Stream, { stream: id, position }: Offset): bigint | undefined {
  if (id === 0n && position === 0n) return 0n;
  const end = id === stream.id ? stream.tail : stream.inherited.find((of) => of.stream === id)?.position;
  return end !== undefined && position <= end ? position : undefined;
}

/** Whether the append that an offset names is in the stream. */
async function isKnown(database: Database, { id }: Stream, offset: Offset): Promise<boolean> {
  const [row] = await database.query<{ known: boolean }>({
    name: "durable_streams_fork_offset",
    text: `SELECT ${isWritten("$1", "$2::bigint", "$3::bigint")} AS known`,
    values: [id, offset.position, offset.writtenAt],
  });
  return row!.known;
}

/** The inherited part of a source, with the streams whose offsets a fork accepts. */
export function inheritedOf({ source, at }: Fork): Inherited[] {
  const before = source.inherited.map(({ stream, position }) => ({
    stream,
    position: position < at ? position : at,
  }));
  return [...before, { stream: source.id, position: at }];
}

/** The length of the given bytes or messages of the append after a position. */
async function lengthWithin(database: Database, source: Stream, begin: bigint, sub: bigint): Promise<bigint> {
  const [row] = await database.query<{ position: bigint; data: Buffer }>({
    name: "durable_streams_fork_chunk",
    text: `SELECT position, data FROM runtime.durable_stream_chunks
      WHERE stream_id = $1 AND position > $2 ORDER BY position LIMIT 1`,
    values: [source.id, begin],
  });
  const rest = row?.data.subarray(row.data.length - Number(row.position - begin)) ?? Buffer.alloc(0);
  const length = isJson(source.contentType)
    ? messagesLength(rest, sub)
    : sub <= rest.length
      ? sub
      : undefined;
  if (length !== undefined) return length;
  throw new KhalaError("invalid_request", "Stream-Fork-Sub-Offset is beyond the append at that offset.", {
    field: "stream-fork-sub-offset",
  });
}
