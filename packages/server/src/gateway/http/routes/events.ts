import type { JsonValue } from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";
import { AppendRequestSchema } from "@khala/contracts/runtime/v1";
import { SpanKind } from "@opentelemetry/api";
import type { FastifyRequest } from "fastify";
import type { Authority } from "../../../events/authority.ts";
import type { StreamDefinition } from "../../../events/stream.ts";
import type { Context } from "../../../kit/context.ts";
import { orgAttributes, traceContext, traceparent } from "../../../kit/telemetry.ts";
import type { SyncMetrics } from "../../../sync/metrics.ts";
import type { Handler, Http } from "../http.ts";
import { readMessage } from "../read_request.ts";

/** `POST <path>/:id/events` for each stream. */
export function runtimeRoutes(
  http: Http,
  context: Context,
  {
    authority,
    streams,
    metrics,
  }: { authority: Authority; streams: readonly StreamDefinition[]; metrics: SyncMetrics },
): void {
  for (const stream of streams) {
    const target = () => ({ streamScope: stream.scope });
    const append: Handler = async (viewer, request, reply) => {
      const { id } = request.params as { id: string };
      const { expected_seq, events } = readBody(request);
      const parent = traceContext(request.headers.traceparent as string | undefined);
      const span = context.telemetry.tracer.startSpan(
        `append ${stream.kind}`,
        { kind: SpanKind.SERVER, attributes: orgAttributes(viewer.org) },
        parent,
      );
      try {
        const trace = traceparent(span);
        const seq = await authority.append({
          stream,
          streamId: id,
          events,
          org: viewer.org,
          actor: viewer.subject,
          ...(expected_seq !== undefined && { expectedSeq: expected_seq }),
          ...(trace && { trace }),
        });
        metrics.appends.add(1, { outcome: "ok" });
        return reply.code(201).send({ seq: String(seq) });
      } catch (error) {
        metrics.appends.add(1, { outcome: error instanceof KhalaError ? error.code : "internal" });
        throw error;
      } finally {
        span.end();
      }
    };
    http.route("stream.append", "POST", `${stream.path}/:id/events`, append, { target });
  }
}

function readBody(request: FastifyRequest) {
  const body = request.body as { events?: unknown } | null;
  const message = readMessage(AppendRequestSchema, body);
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
