import { Readable } from "node:stream";
import { KhalaError } from "@khala/contracts";
import type { FastifyReply, FastifyRequest } from "fastify";
import { notFound } from "../../../access/access.ts";
import type { ByteRange } from "../../../conversations/files/file_store.ts";
import { fileIdOf, fileUrl } from "../../../conversations/files/file_urls.ts";
import { isInline } from "../../../conversations/files/media_type.ts";
import type { ConversationPlane, ReadableFile } from "../../../conversations/plane.ts";
import { readConvId } from "../conversation_request.ts";
import { isKnown } from "../etag.ts";
import type { Handler, Http } from "../http.ts";
import { queryOf, readText } from "../read_request.ts";

const MAX_NAME = 255;

/** `/files`: store a file of a conversation, and read it, whole or in part. */
export function fileRoutes(http: Http, conversations: ConversationPlane): void {
  const upload: Handler = async (who, request, reply) => {
    const { conv_id, name } = queryOf(request);
    try {
      const stored = await conversations.putFile(who, readConvId(conv_id), {
        name: readName(name),
        mediaType: request.headers["content-type"],
        bytes: bodyOf(request),
      });
      return reply.code(201).header("Location", stored.url).send(stored);
    } catch (error) {
      // The rest of the body is not read: no other request can follow on this connection.
      if (!request.raw.complete) reply.header("Connection", "close");
      throw error;
    }
  };
  http.route("conversation.write", "POST", "/files{?conv_id,name}", upload, { streamed: true });

  const read: Handler = async (who, request, reply) => {
    const { file_id } = request.params as { file_id: string };
    if (fileIdOf(fileUrl(file_id)) === undefined) throw notFound("file", file_id);
    return send(request, reply, await conversations.file(who, file_id));
  };
  // HEAD by itself: that of the framework would read the bytes.
  http.route("conversation.read", "GET", "/files/:file_id", read, { exposeHeadRoute: false });
  http.route("conversation.read", "HEAD", "/files/:file_id", read);
}

function bodyOf({ body }: FastifyRequest): AsyncIterable<Uint8Array> {
  return body instanceof Readable ? body : Readable.from([]);
}

/** The last part of a path, as some browsers send it, without characters that cannot be stored. */
function readName(sent: unknown): string {
  const name = readText(sent, "name", MAX_NAME)?.split(/[/\\]/).at(-1)?.trim() || "file";
  if (!/\p{Cc}/u.test(name) && name.isWellFormed()) return name;
  throw new KhalaError("invalid_request", "name must not contain control characters.", { field: "name" });
}

function send(request: FastifyRequest, reply: FastifyReply, file: ReadableFile): FastifyReply {
  // A file never changes.
  const etag = `"${file.fileId}"`;
  reply
    .header("ETag", etag)
    .header("Accept-Ranges", "bytes")
    // Stored, but not shown without asking: the conversation may have been deleted.
    .header("Cache-Control", "private, no-cache")
    .header("X-Content-Type-Options", "nosniff")
    .header("Cross-Origin-Resource-Policy", "same-origin")
    .header("Content-Security-Policy", "sandbox; default-src 'none'")
    .header("Content-Disposition", disposition(file));
  if (isKnown(request, etag)) return reply.code(304).send();
  const { "if-range": ifRange } = request.headers;
  const asked = ifRange === undefined || ifRange === etag ? request.headers.range : undefined;
  const range = readRange(asked, file.size);
  if (range === "unsatisfiable") {
    const message = `The file has ${file.size} bytes; the requested range is outside of it.`;
    reply.code(416).header("Content-Range", `bytes */${file.size}`);
    return reply.send({ error: new KhalaError("invalid_request", message, { field: "range" }) });
  }
  const { start, end } = range ?? { start: 0, end: file.size };
  if (range) reply.code(206).header("Content-Range", `bytes ${start}-${end - 1}/${file.size}`);
  reply.type(typeOf(file)).header("Content-Length", end - start);
  if (request.method === "HEAD") return reply.send();
  return reply.send(Readable.from(file.read({ start, end }), { objectMode: false, highWaterMark: 1 }));
}

/** One range of bytes; undefined for the whole file, which is also the answer to several ranges and to what is no range. */
function readRange(header: string | undefined, size: number): ByteRange | "unsatisfiable" | undefined {
  const [, from, to] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.replaceAll(" ", "") ?? "") ?? [];
  if (from === undefined || (from === "" && to === "")) return undefined;
  const last = to === "" ? size - 1 : Number(to);
  if (from === "") return last === 0 ? "unsatisfiable" : { start: Math.max(0, size - last), end: size };
  const start = Number(from);
  if (to !== "" && last < start) return undefined;
  return start >= size ? "unsatisfiable" : { start, end: Math.min(last + 1, size) };
}

/** Texts are stored as they were sent; without a charset a browser would guess. */
function typeOf({ mediaType }: ReadableFile): string {
  return mediaType.startsWith("text/") ? `${mediaType}; charset=utf-8` : mediaType;
}

function disposition({ mediaType, name }: ReadableFile): string {
  const ascii = name.replace(/[^\x20-\x7e]|["\\%]/g, "_");
  const encoded = encodeURIComponent(name).replace(
    /['()*]/g,
    (each) => `%${each.charCodeAt(0).toString(16)}`,
  );
  return `${isInline(mediaType) ? "inline" : "attachment"}; filename="${ascii}"; filename*=UTF-8''${encoded}`;
}
