import { toJson } from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";
import {
  ChooseBranchRequestSchema,
  DecideToolRequestSchema,
  EditQueuedRequestSchema,
  ParticipantSchema,
  PostEventsRequestSchema,
  type UiMessagePageJson,
} from "@khala/contracts/conversation/v1";
import type { FastifyRequest } from "fastify";
import { uiMessageOf } from "../../../conversations/messages/ui_message.ts";
import type { ConversationPlane } from "../../../conversations/plane.ts";
import type { Context } from "../../../kit/context.ts";
import { httpSpan, inServerSpan } from "../../../kit/telemetry.ts";
import { readChat, readConvId, readRunId, readStop } from "../conversation_request.ts";
import type { Http } from "../http.ts";
import { pageAfter, queryOf, readAfter, readLimit, readMessage, readText } from "../read_request.ts";

const MAX_CURSOR = 200;
const MAX_MESSAGE_ID = 400;

/** `/chat`: send a message, stop a run, decide a tool call, read one conversation or list all, read a log, delete. */
export function chatRoutes(http: Http, context: Context, conversations: ConversationPlane): void {
  http.route("conversation.write", "POST", "/chat", async (who, request, reply) => {
    const command = readChat(request.body, headerOf(request, "idempotency-key"));
    const span = { ...httpSpan("POST", "/chat", who.org), parent: headerOf(request, "traceparent") };
    return inServerSpan(context.telemetry, span, async (traced) =>
      reply.code(202).send(await conversations.chat(who, { ...command, ...traced })),
    );
  });

  http.route("conversation.read", "GET", "/chat{?limit,after,status,q}", async (who, request) => {
    const { limit, after, status, q } = queryOf(request);
    const query = {
      limit: readLimit(limit),
      after: readAfter(after),
      status: readStatus(status),
      q: readWords(q),
    };
    const { conversations: found, next } = await conversations.list(who, query);
    const listed = found.map((conversation) => ({ run: null, ...conversation }));
    return { conversations: listed, ...pageAfter(next) };
  });

  http.route("conversation.read", "GET", "/chat/:conv_id/log{?limit,after}", async (who, request, reply) => {
    const { limit, after } = queryOf(request);
    const from = readText(after, "after", MAX_CURSOR) || undefined;
    const { events, next } = await conversations.log(who, convIdOf(request), from, readLimit(limit));
    const rest = next === undefined ? "" : `,"next":${JSON.stringify(next)}`;
    // Each is JSON already, the same that sockets get.
    const body = `{"events":[${events.join(",")}]${rest}}`;
    return reply.type("application/json").send(body);
  });

  http.route(
    "conversation.read",
    "GET",
    "/chat/:conv_id/messages{?before,leaf,limit}",
    async (who, request) => {
      const { before, leaf, limit } = queryOf(request);
      const page = await conversations.messages(who, convIdOf(request), {
        before: readText(before, "before", MAX_MESSAGE_ID) || undefined,
        leaf: readText(leaf, "leaf", MAX_MESSAGE_ID) || undefined,
        limit: readLimit(limit),
      });
      const body: UiMessagePageJson = {
        messages: page.messages.map(uiMessageOf),
        ...(page.before !== undefined && { before: page.before }),
      };
      return body;
    },
  );

  http.route(
    "conversation.write",
    "POST",
    "/chat/:conv_id/stop{?run_id}",
    async (who, request) => conversations.stopRun(who, convIdOf(request), readStop(request)),
    { bodyOptional: true },
  );

  http.route("conversation.write", "POST", "/chat/:conv_id/branch", async (who, request) => {
    const { messageId } = readMessage(ChooseBranchRequestSchema, request.body);
    return conversations.chooseBranch(who, convIdOf(request), messageId);
  });

  http.route("conversation.write", "POST", "/chat/:conv_id/events", async (who, request, reply) => {
    const { events = [] } = toJson(
      PostEventsRequestSchema,
      readMessage(PostEventsRequestSchema, request.body),
    );
    return reply.code(201).send(await conversations.post(who, convIdOf(request), events));
  });

  http.route("tool_call.decide", "POST", "/chat/:conv_id/tools/:call_id", async (who, request) => {
    const decision = toJson(DecideToolRequestSchema, readMessage(DecideToolRequestSchema, request.body));
    return conversations.decideCalls(who, convIdOf(request), [
      { callId: paramsOf(request).call_id, decision },
    ]);
  });

  http.route("conversation.read", "GET", "/chat/:conv_id", async (who, request) => {
    const state = await conversations.state(who, convIdOf(request));
    return { run: null, ...state };
  });

  http.route("conversation.delete", "DELETE", "/chat/:conv_id", async (who, request, reply) => {
    await conversations.remove(who, convIdOf(request));
    return reply.code(204).send();
  });

  queueRoutes(http, conversations);
  participantRoutes(http, conversations);

  http.open("GET", "/ws", async () => {
    throw new KhalaError(
      "upgrade_required",
      "This is a WebSocket. Connect to it with ?conv_id=<id>&token=<jwt>.",
    );
  });
}

/** The messages that wait for the active run, to be read, edited and cancelled. */
function queueRoutes(http: Http, conversations: ConversationPlane): void {
  http.route("conversation.read", "GET", "/chat/:conv_id/queue", async (who, request) => {
    const queue = await conversations.queue(who, convIdOf(request));
    return queue;
  });

  http.route("conversation.write", "PATCH", "/chat/:conv_id/queue/:run_id", async (who, request) => {
    const edited = toJson(EditQueuedRequestSchema, readMessage(EditQueuedRequestSchema, request.body));
    return conversations.editQueued(who, convIdOf(request), readRunId(paramsOf(request).run_id), edited);
  });

  http.route("conversation.write", "DELETE", "/chat/:conv_id/queue/:run_id", async (who, request) =>
    conversations.cancelQueued(who, convIdOf(request), readRunId(paramsOf(request).run_id)),
  );
}

/** Who takes part in a conversation. */
function participantRoutes(http: Http, conversations: ConversationPlane): void {
  http.route("conversation.read", "GET", "/chat/:conv_id/participants", async (who, request) => {
    const list = await conversations.participants(who, convIdOf(request));
    return list;
  });

  const path = "/chat/:conv_id/participants/:subject";
  http.route("conversation.manage", "PUT", path, async (who, request) => {
    const { role } = readMessage(ParticipantSchema, request.body);
    const subject = paramsOf(request).subject;
    return conversations.putParticipant(who, convIdOf(request), { subject, role });
  });

  http.route("conversation.manage", "DELETE", path, async (who, request) =>
    conversations.removeParticipant(who, convIdOf(request), paramsOf(request).subject),
  );
}

const STATUSES: readonly string[] = ["running", "waiting", "finished", "failed", "stopped"];
const MAX_WORDS = 200;

/** Reads the statuses of runs that are listed. */
function readStatus(sent: unknown): string[] | undefined {
  if (sent === undefined) return undefined;
  const statuses = typeof sent === "string" ? sent.split(",") : [];
  if (statuses.length > 0 && statuses.every((status) => STATUSES.includes(status))) return statuses;
  const message = `status must be one of ${STATUSES.join(", ")}, or several of them separated by commas.`;
  throw new KhalaError("invalid_request", message, { field: "status" });
}

/** Reads the words that are looked for. */
function readWords(sent: unknown): string | undefined {
  if (sent === undefined) return undefined;
  if (
    typeof sent === "string" &&
    /[\p{L}\p{N}]/u.test(sent) &&
    sent.length <= MAX_WORDS &&
    !sent.includes("\0")
  )
    return sent;
  const message = `q must have 1 to ${MAX_WORDS} characters, with at least one letter or digit.`;
  throw new KhalaError("invalid_request", message, { field: "q" });
}

/** The parameters of a route's path, of those that its path names. */
function paramsOf(request: FastifyRequest) {
  return request.params as Readonly<Record<"conv_id" | "run_id" | "call_id" | "subject", string>>;
}

function convIdOf(request: FastifyRequest): string {
  return readConvId(paramsOf(request).conv_id);
}

function headerOf(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value[0] : value;
}
