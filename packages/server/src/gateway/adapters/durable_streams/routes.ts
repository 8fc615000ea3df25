import { Readable } from "node:stream";
import { KhalaError } from "@khala/contracts";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Action } from "../../../access/actions.ts";
import type { Viewer } from "../../../access/viewer.ts";
import type { ForkRequest } from "../../../durable_streams/forks.ts";
import { messageArray, storedMessages } from "../../../durable_streams/json_mode.ts";
import { formatOffset, type Offset } from "../../../durable_streams/offset.ts";
import type { Page } from "../../../durable_streams/pages.ts";
import type { DurableStreams } from "../../../durable_streams/store.ts";
import { isJson, mediaType, type Stream, type StreamName } from "../../../durable_streams/stream.ts";
import type { Context } from "../../../kit/context.ts";
import { type Revocations, whenRevoked } from "../../auth/revocations.ts";
import { isKnown } from "../../http/etag.ts";
import type { Http, Route } from "../../http/http.ts";
import type { LiveStreams } from "../../http/live_streams.ts";
import { answerAppend, noStream, streamGone, tailOffset } from "./answer.ts";
import { complete, endOf, nextCursor, pageWhenReady, readFrom, upToDate } from "./live.ts";
import {
  asksToClose,
  readBody,
  readClaim,
  readConfig,
  readContentType,
  readFork,
  readPath,
  readQuery,
  readSeq,
} from "./request.ts";
import { needsBase64, sseEvents } from "./sse.ts";

export interface DurableStreamsRoutesOptions {
  readonly streams: DurableStreams;
  readonly revocations: Revocations;
  readonly live: LiveStreams;
  /** Ends what waits. Closing the server does so too. */
  readonly signal?: AbortSignal;
  readonly longPollMs?: number;
  readonly sseMs?: number;
}

const PREFIX = "/streams/";
const ACTION_OF: Readonly<Record<string, Action>> = {
  GET: "durable_stream.read",
  HEAD: "durable_stream.read",
  PUT: "durable_stream.write",
  POST: "durable_stream.write",
  DELETE: "durable_stream.delete",
};
/** How long the last bytes of a live read may take. */
const GRACE_MS = 10_000;
const METHODS = "GET, HEAD, PUT, POST, DELETE";
const ALLOWED = [
  "authorization, content-type, if-none-match, traceparent, stream-seq, stream-ttl, stream-expires-at",
  "stream-forked-from, stream-fork-offset, stream-fork-sub-offset, stream-closed, producer-id, producer-epoch, producer-seq",
].join(", ");
const EXPOSED = [
  "ETag, Retry-After, Location, Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, Stream-TTL",
  "Stream-Expires-At, Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, Producer-Expected-Seq, Producer-Received-Seq",
].join(", ");

/** The durable-streams protocol at `/streams/*`. Its bodies are bytes of any type; other routes accept only JSON. */
export function durableStreamsRoutes(
  http: Http,
  context: Context,
  options: DurableStreamsRoutesOptions,
): void {
  const { streams, revocations, longPollMs = 20_000, sseMs = 60_000 } = options;
  const stopping = new AbortController();
  const over = options.signal ? AbortSignal.any([stopping.signal, options.signal]) : stopping.signal;
  http.app.addHook("preClose", async () => stopping.abort());
  const viewers = new WeakMap<FastifyRequest, Viewer>();

  const nameOf = (request: FastifyRequest): StreamName => ({
    caller: viewers.get(request)!,
    path: readPath(request),
  });

  for (const [method, action] of Object.entries(ACTION_OF))
    http.list({ method: method as Route["method"], path: `${PREFIX}*`, action });
  http.app.register(async (scope) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
    scope.addHook("onRequest", async (request, reply) => {
      reply.header("X-Content-Type-Options", "nosniff").header("Cross-Origin-Resource-Policy", "same-origin");
      if (reply.hasHeader("Access-Control-Allow-Origin"))
        reply.header("Access-Control-Expose-Headers", EXPOSED);
      const action = ACTION_OF[request.method];
      if (action) viewers.set(request, await http.admit(request, action));
    });
    routes(scope);
  });

  function routes(scope: FastifyInstance): void {
    scope.options(`${PREFIX}*`, async (_request, reply) => {
      reply.header("Access-Control-Allow-Methods", METHODS).header("Access-Control-Allow-Headers", ALLOWED);
      return reply.header("Access-Control-Max-Age", "600").code(204).send();
    });

    scope.put(`${PREFIX}*`, async (request, reply) => {
      const forked = readFork(request.headers);
      const source = forked && (await readSource(nameOf(request), forked));
      const config = readConfig(request.headers, source);
      if (source && mediaType(source.contentType) !== mediaType(config.contentType))
        throw new KhalaError(
          "stream_conflict",
          `The source has the content type ${source.contentType}. Leave Content-Type out.`,
          {
            field: "content-type",
          },
        );
      const body = readBody(request);
      const data = body.length > 0 && isJson(config.contentType) ? storedMessages(body) : body;
      const fork = source && forked && { source, request: forked };
      const made = await streams.create(nameOf(request), config, data, fork);
      if (!made)
        throw new KhalaError("stream_conflict", "A stream with another configuration exists at this path.");
      const { stream, created } = made;
      reply.header("Content-Type", stream.contentType).header("Stream-Next-Offset", tailOffset(stream));
      if (stream.closed) reply.header("Stream-Closed", "true");
      if (created)
        reply.header("Location", `${request.protocol}://${request.host}${request.url.split("?")[0]}`);
      return reply.code(created ? 201 : 200).send();
    });

    scope.post(`${PREFIX}*`, async (request, reply) => {
      const { headers } = request;
      const claim = readClaim(headers);
      const body = readBody(request);
      const close = asksToClose(headers);
      const hasData = body.length > 0;
      if (!hasData && !close)
        throw new KhalaError("invalid_request", "The body is empty. Send the data to append.");
      const contentType = hasData ? readContentType(headers) : undefined;
      const data = contentType !== undefined && isJson(contentType) ? storedMessages(body) : body;
      if (hasData && data.length === 0)
        throw new KhalaError("invalid_request", "The array is empty. Send at least one message.");
      const append = { name: nameOf(request), data, contentType, close, seq: readSeq(headers), claim };
      return answerAppend(reply, await streams.append(append), { claim, hasData });
    });

    scope.head(`${PREFIX}*`, async (request, reply) => {
      const stream = await streams.find(nameOf(request));
      if (!stream) throw noStream();
      if (stream.gone) throw streamGone();
      reply
        .header("Content-Type", stream.contentType)
        .header("Stream-Next-Offset", tailOffset(stream))
        .header("Cache-Control", "no-store");
      if (stream.closed) reply.header("Stream-Closed", "true");
      if (stream.ttlS !== undefined) reply.header("Stream-TTL", String(stream.ttlS));
      if (stream.expiresAt !== undefined) reply.header("Stream-Expires-At", stream.expiresAt);
      return reply.send();
    });

    scope.delete(`${PREFIX}*`, async (request, reply) => {
      await http.audited(viewers.get(request)!, "durable_stream.delete", request, async () => {
        const removed = await streams.remove(nameOf(request));
        if (removed === "gone") throw streamGone();
        if (!removed) throw noStream();
      });
      return reply.code(204).send();
    });

    scope.get(`${PREFIX}*`, async (request, reply) => {
      const { start, live: mode, cursor } = readQuery(request);
      const name = nameOf(request);
      const first = await readFrom(streams, name, start);
      if (mode === undefined) {
        if (start !== "now") return sendPage(request, reply, first);
        return writePage(reply.header("Cache-Control", "no-store"), first);
      }
      const signal = beginLive(viewers.get(request)!, reply, mode === "sse" ? sseMs : longPollMs);
      if (mode === "long-poll") {
        const deadline = context.clock.now() + longPollMs;
        const read = (offset: Offset) => readFrom(streams, name, offset);
        const page = await pageWhenReady(context, streams, { first, read, deadline, signal });
        reply.header("Stream-Cursor", nextCursor(context, cursor)).header("Cache-Control", "no-store");
        return page.data.length > 0 ? writePage(reply, page) : pageHeaders(reply, page).code(204).send();
      }
      if (needsBase64(first.stream.contentType)) reply.header("Stream-SSE-Data-Encoding", "base64");
      const deadline = context.clock.now() + sseMs;
      const events = sseEvents(context, streams, name, {
        first,
        cursor,
        deadline,
        signal,
      });
      return reply
        .header("Content-Type", "text/event-stream")
        .header("Cache-Control", "no-cache")
        .send(Readable.from(events, { objectMode: false }));
    });
  }

  /** The stream that is forked. */
  async function readSource({ caller }: StreamName, { from }: ForkRequest): Promise<Stream> {
    const source = await streams.find({ caller, path: from });
    if (!source) throw noStream();
    if (source.gone)
      throw new KhalaError("stream_conflict", "The source was deleted. Fork one of its forks instead.", {
        field: "stream-forked-from",
      });
    return source;
  }

  /** Counts a live read until its connection or answer ends; the signal ends its waiting. */
  function beginLive(viewer: Viewer, reply: FastifyReply, ms: number): AbortSignal {
    options.live.enter(viewer, reply);
    const gone = new AbortController();
    // The client may have left while the first page was read; `close` is not emitted twice.
    if (reply.raw.closed) {
      gone.abort();
      return gone.signal;
    }
    // A client that does not read would stay connected for ever, and an expired token must not read on.
    const left = Math.max(0, viewer.expiresAt - context.clock.now());
    const cancel = context.clock.after(Math.min(ms + GRACE_MS, left), () => reply.raw.destroy());
    const unsubscribe = whenRevoked(revocations, viewer, () => reply.raw.destroy());
    reply.raw.once("close", () => {
      cancel();
      unsubscribe();
      gone.abort();
    });
    return AbortSignal.any([gone.signal, over]);
  }
}

/** Answers a catch-up read, or that the reader has it already. */
function sendPage(request: FastifyRequest, reply: FastifyReply, page: Page): FastifyReply {
  const { offset = "-1" } = request.query as { offset?: string };
  const etag = `"${offset}:${formatOffset(endOf(page))}${complete(page) ? ":closed" : ""}"`;
  reply.header("ETag", etag).header("Cache-Control", "private, no-cache");
  return isKnown(request, etag) ? reply.code(304).send() : writePage(reply, page);
}

function writePage(reply: FastifyReply, page: Page): FastifyReply {
  const { contentType } = page.stream;
  return pageHeaders(reply, page)
    .header("Content-Type", contentType)
    .send(isJson(contentType) ? messageArray(page.data) : page.data);
}

function pageHeaders(reply: FastifyReply, page: Page): FastifyReply {
  reply.header("Stream-Next-Offset", formatOffset(endOf(page)));
  if (upToDate(page)) reply.header("Stream-Up-To-Date", "true");
  if (complete(page)) reply.header("Stream-Closed", "true");
  return reply;
}
