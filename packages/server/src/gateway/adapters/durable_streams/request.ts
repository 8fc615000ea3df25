import type { IncomingHttpHeaders } from "node:http";
import { KhalaError } from "@khala/contracts";
import type { FastifyRequest } from "fastify";
import type { ForkRequest } from "../../../durable_streams/forks.ts";
import { BEGINNING, type Offset, parseOffset } from "../../../durable_streams/offset.ts";
import type { Claim, StreamConfig } from "../../../durable_streams/stream.ts";
import { invalid } from "../../../kit/invalid.ts";

/** The start of a read: the first byte, the current end, or an offset from an earlier answer. */
export type Start = "beginning" | "now" | Offset;

/** How a read waits for more data. */
export type Live = "long-poll" | "sse" | undefined;

const FORK_HEADERS = ["stream-fork-offset", "stream-fork-sub-offset"];
const MAX_PATH = 600;
const MAX_PRODUCER_ID = 256;
const MAX_SEQ = 256;
const MAX_CONTENT_TYPE = 256;
/** A hundred years. */
const MAX_TTL_S = 3_155_760_000n;
const MAX_YEAR = 9_999;

/** The stream's path: what follows `/streams/`. */
export function readPath(request: FastifyRequest): string {
  const { "*": path } = request.params as { "*": string };
  if (path === "" || path.length > MAX_PATH || path.includes("\0"))
    throw new KhalaError(
      "not_found",
      `The path of a stream must have 1 to ${MAX_PATH} characters, without NUL.`,
    );
  return path;
}

/** The body as it was sent, empty when there is none. */
export function readBody(request: FastifyRequest): Buffer {
  return Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
}

/** The fork that a PUT asks for; undefined when it is none. */
export function readFork(headers: IncomingHttpHeaders): ForkRequest | undefined {
  const from = text(headers, "stream-forked-from");
  if (from === undefined) {
    const lost = FORK_HEADERS.find((name) => headers[name] !== undefined);
    if (lost) throw invalid(lost, "A fork needs its source. Name it in Stream-Forked-From.");
    return undefined;
  }
  const offset = text(headers, "stream-fork-offset");
  const sub = text(headers, "stream-fork-sub-offset") ?? "0";
  if (!/^(0|[1-9]\d{0,15})$/.test(sub))
    throw invalid(
      "stream-fork-sub-offset",
      "Stream-Fork-Sub-Offset must be a whole number without leading zeros.",
    );
  return {
    from: sourcePath(from),
    offset: offset === undefined ? undefined : readForkOffset(offset),
    sub: BigInt(sub),
  };
}

/** The path of a fork's source, which may be given with the prefix of all streams. */
function sourcePath(from: string): string {
  try {
    const path = decodeURIComponent(from).replace(/^\/(streams\/)?/, "");
    if (path.length <= MAX_PATH && !path.includes("\0")) return path;
  } catch {
    // Not percent-encoding.
  }
  throw invalid(
    "stream-forked-from",
    `Stream-Forked-From must be the path of a stream, with at most ${MAX_PATH} characters.`,
  );
}

function readForkOffset(value: string): Offset {
  const offset = value === "-1" ? BEGINNING : parseOffset(value);
  if (offset) return offset;
  throw invalid(
    "stream-fork-offset",
    "Stream-Fork-Offset must be -1, or a Stream-Next-Offset of the source, unchanged.",
  );
}

/** The stream that a PUT creates. A fork has what it does not say from its source. */
export function readConfig(headers: IncomingHttpHeaders, source?: StreamConfig): StreamConfig {
  let ttlS = readTtl(text(headers, "stream-ttl"));
  let expiresAt = readExpiresAt(text(headers, "stream-expires-at"));
  if (source && ttlS === undefined && expiresAt === undefined) ({ ttlS, expiresAt } = source);
  if (ttlS !== undefined && expiresAt !== undefined)
    throw invalid("stream-ttl", "Send either Stream-TTL or Stream-Expires-At, not both.");
  return {
    contentType: contentTypeOr(headers, source?.contentType ?? "application/octet-stream"),
    ttlS,
    expiresAt,
    closed: asksToClose(headers),
  };
}

/** The type of a body; refused when there is none. */
export function readContentType(headers: IncomingHttpHeaders): string {
  const contentType = contentTypeOr(headers, undefined);
  if (contentType === undefined)
    throw invalid("content-type", "The request has no Content-Type. Send the content type of the stream.");
  return contentType;
}

/** Whether the stream is to be closed, or to begin closed. */
export function asksToClose(headers: IncomingHttpHeaders): boolean {
  return text(headers, "stream-closed")?.toLowerCase() === "true";
}

/** `Stream-Seq`, by which writers keep out of each other's way. */
export function readSeq(headers: IncomingHttpHeaders): string | undefined {
  const seq = text(headers, "stream-seq");
  if (seq !== undefined && seq.length > MAX_SEQ)
    throw invalid("stream-seq", `Stream-Seq must have at most ${MAX_SEQ} characters.`);
  return seq;
}

/** The producer's headers: all three, or none. */
export function readClaim(headers: IncomingHttpHeaders): Claim | undefined {
  const producer = text(headers, "producer-id");
  const epoch = text(headers, "producer-epoch");
  const seq = text(headers, "producer-seq");
  if (producer === undefined && epoch === undefined && seq === undefined) return undefined;
  if (producer === undefined || epoch === undefined || seq === undefined)
    throw invalid(
      "producer-id",
      "Send Producer-Id, Producer-Epoch and Producer-Seq together, or none of them.",
    );
  if (producer === "" || producer.length > MAX_PRODUCER_ID)
    throw invalid("producer-id", `Producer-Id must have 1 to ${MAX_PRODUCER_ID} characters.`);
  return { producer, epoch: readCount("producer-epoch", epoch), seq: readCount("producer-seq", seq) };
}

/** `offset`, `live` and `cursor` of a GET. */
export function readQuery(request: FastifyRequest): { start: Start; live: Live; cursor: string | undefined } {
  const { offset, live, cursor } = request.query as Record<string, string | string[] | undefined>;
  const start = readStart(offset);
  if (live !== undefined && live !== "long-poll" && live !== "sse")
    throw invalid("live", "live must be long-poll or sse. Leave it out to read the existing data at once.");
  if (live !== undefined && offset === undefined)
    throw invalid(
      "offset",
      "A live read needs an offset: -1 for the beginning, now, or the last Stream-Next-Offset.",
    );
  return { start, live, cursor: typeof cursor === "string" ? cursor : undefined };
}

function readStart(offset: string | string[] | undefined): Start {
  if (offset === undefined || offset === "-1") return "beginning";
  if (offset === "now") return "now";
  const parsed = typeof offset === "string" ? parseOffset(offset) : undefined;
  if (parsed) return parsed;
  throw invalid("offset", "offset must be -1, now, or an unchanged Stream-Next-Offset of this stream.");
}

function readTtl(value: string | undefined): bigint | undefined {
  if (value === undefined) return undefined;
  if (/^(0|[1-9]\d{0,11})$/.test(value) && BigInt(value) <= MAX_TTL_S) return BigInt(value);
  throw invalid(
    "stream-ttl",
    `Stream-TTL must be a whole number of seconds, at most ${MAX_TTL_S}, without sign or leading zeros.`,
  );
}

function readExpiresAt(value: string | undefined): string | undefined {
  if (value === undefined) return undefined;
  const year = new Date(value).getUTCFullYear();
  if (year >= 0 && year <= MAX_YEAR) return value;
  throw invalid("stream-expires-at", "Stream-Expires-At must be a time such as 2031-01-31T12:00:00Z.");
}

function readCount(field: string, value: string): bigint {
  if (/^\d{1,16}$/.test(value) && BigInt(value) <= BigInt(Number.MAX_SAFE_INTEGER)) return BigInt(value);
  throw invalid(field, `${field} must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}.`);
}

function contentTypeOr<T>(headers: IncomingHttpHeaders, otherwise: T): string | T {
  const value = text(headers, "content-type")?.trim();
  if (!value || !/^[\w.+-]+\/[\w.+-]+/.test(value)) return otherwise;
  if (value.length <= MAX_CONTENT_TYPE) return value;
  throw invalid("content-type", `Content-Type must have at most ${MAX_CONTENT_TYPE} characters.`);
}

function text(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(",") : value;
}
