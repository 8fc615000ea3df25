import { KhalaError, SCOPES } from "@khala/contracts";
import { SpanKind } from "@opentelemetry/api";
import type { FastifyRequest } from "fastify";
import type { Caller, ConversationPlane } from "../../../conversations/plane.ts";
import type { Context } from "../../../kit/context.ts";
import { orgAttributes, traceContext, traceparent } from "../../../kit/telemetry.ts";
import { requireScope } from "../../auth/claims.ts";
import { callerOf, readChat, readConvId } from "../conversation_request.ts";
import type { Http } from "../http.ts";
import { pageAfter, readAfter, readLimit, readText } from "../read_request.ts";

const MAX_CURSOR = 200;

/** `/chat`: send a message, stop a run, read one conversation or list all, read a log, delete. */
export function chatRoutes(http: Http, context: Context, conversations: ConversationPlane): void {
  http.app.post("/chat", async (request, reply) => {
    const who = await caller(request);
    const command = readChat(request.body, headerOf(request, "idempotency-key"));
    const parent = traceContext(headerOf(request, "traceparent"));
    const span = context.telemetry.tracer.startSpan(
      "chat",
      { kind: SpanKind.SERVER, attributes: orgAttributes(who.org) },
      parent,
    );
    try {
      const trace = traceparent(span);
      const answer = await conversations.chat(who, { ...command, ...(trace && { trace }) });
      return reply.code(202).send(answer);
    } finally {
      span.end();
    }
  });

  http.app.get("/chat", async (request, reply) => {
    const { limit, after } = request.query as Record<string, unknown>;
    const query = { limit: readLimit(limit), after: readAfter(after) };
    const { conversations: found, next } = await conversations.list(await caller(request), query);
    const listed = found.map((conversation) => ({ run: null, ...conversation }));
    return reply.header("Cache-Control", "no-store").send({ conversations: listed, ...pageAfter(next) });
  });

  http.app.get("/chat/:conv_id/log", async (request, reply) => {
    const who = await caller(request);
    const { limit, after } = request.query as Record<string, unknown>;
    const from = readText(after, "after", MAX_CURSOR) || undefined;
    const { events, next } = await conversations.log(who, convIdOf(request), from, readLimit(limit));
    const rest = next === undefined ? "" : `,"next":${JSON.stringify(next)}`;
    // Each is JSON already, the same that sockets get.
    const body = `{"events":[${events.join(",")}]${rest}}`;
    return reply.header("Cache-Control", "no-store").type("application/json").send(body);
  });

  http.app.post("/chat/:conv_id/stop", async (request) =>
    conversations.stopRun(await caller(request), convIdOf(request)),
  );

  http.app.get("/chat/:conv_id", async (request, reply) => {
    const state = await conversations.state(await caller(request), convIdOf(request));
    return reply.header("Cache-Control", "no-store").send({ run: null, ...state });
  });

  http.app.delete("/chat/:conv_id", async (request, reply) => {
    await conversations.remove(await caller(request), convIdOf(request));
    return reply.code(204).send();
  });

  http.app.get("/ws", async () => {
    throw new KhalaError(
      "upgrade_required",
      "This is a WebSocket. Connect to it with ?conv_id=<id>&token=<jwt>.",
    );
  });

  async function caller(request: FastifyRequest): Promise<Caller> {
    const viewer = await http.viewer(request);
    requireScope(viewer, SCOPES.chat);
    return callerOf(viewer);
  }
}

function convIdOf(request: FastifyRequest): string {
  return readConvId((request.params as { conv_id: string }).conv_id);
}

function headerOf(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value[0] : value;
}
