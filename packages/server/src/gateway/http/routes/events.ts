import type { JsonValue } from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";
import { AppendRequestSchema } from "@khala/contracts/runtime/v1";
import type { FastifyRequest } from "fastify";
import { may, notFound } from "../../../access/access.ts";
import type { StoredBytes } from "../../../database/stored_bytes.ts";
import { appendAs } from "../../../events/append_access.ts";
import { type Authority, isStreamId } from "../../../events/authority.ts";
import type { StreamDefinition, StreamEvent } from "../../../events/stream.ts";
import type { Context } from "../../../kit/context.ts";
import { httpSpan, inServerSpan } from "../../../kit/telemetry.ts";
import type { SyncMetrics } from "../../../sync/metrics.ts";
import type { Handler, Http } from "../http.ts";
import { bodyBytes, queryOf, readLimit, readMessage } from "../read_request.ts";

/** `POST` and `GET <path>/:id/events` for each stream. */
export function runtimeRoutes(
  http: Http,
  context: Context,
  {
    authority,
    streams,
    metrics,
    stored,
  }: {
    authority: Authority;
    streams: readonly StreamDefinition[];
    metrics: SyncMetrics;
    stored?: StoredBytes | undefined;
  },
): void {
  for (const stream of streams) {
    const target = () => ({ streamScope: stream.scope });
    const append: Handler = async (viewer, request, reply) => {
      const { id } = request.params as { id: string };
      const { expected_seq, events } = readBody(request);
      const parent = request.headers.traceparent as string | undefined;
      const span = { ...httpSpan("POST", `${stream.path}/:id/events`, viewer.org), parent };
      return inServerSpan(context.telemetry, span, async (traced) => {
        try {
          stored?.take(viewer.org, "sync", bodyBytes(request));
          const seq = await appendAs(authority, viewer, {
            stream,
            streamId: id,
            events,
            ...(expected_seq !== undefined && { expectedSeq: expected_seq }),
            ...traced,
          });
          metrics.appends.add(1, { outcome: "ok" });
          return reply.code(201).send({ seq: String(seq) });
        } catch (error) {
          metrics.appends.add(1, { outcome: error instanceof KhalaError ? error.code : "internal" });
          throw error;
        }
      });
    };
    const read: Handler = async (viewer, request) => {
      const { id } = request.params as { id: string };
      const query = queryOf(request);
      const after = readSequence(query.after);
      const limit = readLimit(query.limit);
      const name = { org: viewer.org, kind: stream.kind, streamId: id };
      const found = isStreamId(id) ? await authority.find(name) : undefined;
      const resource = { org: viewer.org, owner: found?.owner ?? "", streamScope: stream.scope };
      if (!found || !may(viewer, "stream.read", resource)) throw notFound(stream.kind, id);
      const events = await authority.readStream(name, after, limit);
      const next = events.length === limit ? { next: String(events.at(-1)!.seq) } : {};
      return { events: events.map(eventJson), ...next };
    };
    http.route("stream.append", "POST", `${stream.path}/:id/events`, append, { target });
    http.route("stream.read", "GET", `${stream.path}/:id/events{?after,limit}`, read, { target });
  }
}

function eventJson({ seq, eventId, type, data, actor, at }: StreamEvent) {
  return { seq: String(seq), event_id: eventId, type, data, actor, at };
}

function readSequence(sent: unknown): bigint {
  if (sent === undefined) return 0n;
  if (typeof sent === "string" && /^\d{1,18}$/.test(sent)) return BigInt(sent);
  throw new KhalaError(
    "invalid_request",
    "after must be the sequence of an event, or the `next` of a page.",
    {
      field: "after",
    },
  );
}

function readBody(request: FastifyRequest) {
  const body = request.body as { events?: unknown } | null;
  const message = readMessage(AppendRequestSchema, body);
  if (message.expectedSeq !== undefined && message.expectedSeq < 0n)
    throw new KhalaError(
      "invalid_request",
      "expected_seq must be the last sequence of the stream, or 0 for a new stream.",
      {
        field: "expected_seq",
      },
    );
  // The data itself is checked against its event type, from the JSON as it was sent.
  const raw = (body?.events ?? []) as { data?: JsonValue }[];
  return {
    expected_seq: message.expectedSeq,
    events: message.events.map((event, i) => ({
      event_id: event.eventId,
      type: event.type,
      data: raw[i]?.data ?? {},
    })),
  };
}
