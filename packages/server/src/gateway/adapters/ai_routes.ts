import { KhalaError } from "@khala/contracts";
import type { FastifyRequest } from "fastify";
import type { ChatCommand } from "../../conversations/plane.ts";
import type { Context } from "../../kit/context.ts";
import { invalid } from "../../kit/invalid.ts";
import { readChat, readConvId, readRunId } from "../http/conversation_request.ts";
import type { Handler, Http } from "../http/http.ts";
import { AiChunks } from "./ai_chunks.ts";
import { readAiContinuation } from "./ai_continuation.ts";
import { joinRun, startRun } from "./ai_run.ts";
import { continueRun } from "./continued_run.ts";
import { readParams, readUiParts } from "./message_parts.ts";
import { type AdapterOptions, respondWithRun } from "./run_response.ts";

const FORM = { headers: { "x-vercel-ai-ui-message-stream": "v1" }, last: "data: [DONE]\n\n" };

/**
 * `/ai/chat` for `DefaultChatTransport` of the AI SDK, 5 to 7: POST sends and streams, GET `/:id/stream` resumes, POST or
 * DELETE `/:id/stop` stops. Leaving the stream does not stop the run: a client's own `stop()` does with `stopOnAbort`.
 * Only the last message is read: `prepareSendMessagesRequest` may leave the others out, which keeps requests small.
 */
export function aiRoutes(http: Http, context: Context, options: AdapterOptions): void {
  const { conversations, live } = options;

  const send: Handler = async (viewer, request, reply) => {
    live.enter(viewer, reply);
    const { id, messages, trigger, messageId, ...params } = Object(request.body) as Sent;
    const continuation = readAiContinuation({ id, messages, trigger });
    const run = continuation
      ? await continueRun(options, { viewer, address: request.ip }, continuation)
      : await startRun(
          context,
          conversations,
          viewer,
          readAiRequest({ id, messages, trigger, messageId }, params, policyOf(request)),
          traceOf(request),
        );
    const translator = new AiChunks(run.runId, continuation?.known);
    await respondWithRun(reply, context, options, {
      viewer,
      run,
      translator,
      first: run.waits ? translator.wait() : [],
      root: "../",
      ...FORM,
    });
  };
  http.route("conversation.write", "POST", "/ai/chat{?policy}", send, { bodyLimit: options.bodyLimit });

  const resume: Handler = async (viewer, request, reply) => {
    live.enter(viewer, reply);
    // The clock skew allows a token that has just expired, but its stream would be cut at once, again and again.
    if (viewer.expiresAt <= context.clock.now())
      throw new KhalaError("token_expired", "The token expired. Resume with a fresh one.");
    const run = await joinRun(conversations, viewer, convIdOf(request));
    if (!run) return reply.code(204).send();
    const translator = new AiChunks(run.runId);
    await respondWithRun(reply, context, options, {
      viewer,
      run,
      joins: true,
      translator,
      first: translator.replay(run.messages),
      root: "../../../",
      ...FORM,
    });
  };
  // Without HEAD, which would wait for the end of the run as well.
  http.route("conversation.read", "GET", "/ai/chat/:id/stream", resume, {
    exposeHeadRoute: false,
    waits: true,
  });

  for (const method of ["POST", "DELETE"] as const)
    http.route("conversation.write", method, "/ai/chat/:id/stop{?run_id}", async (viewer, request) =>
      conversations.stopRun(
        viewer,
        convIdOf(request),
        readRunId((request.query as { run_id?: unknown }).run_id),
      ),
    );

  http.open("GET", "/ai/ws", async () => {
    const message = "This is a WebSocket. Give its address to WebSocketChatTransport, with ?token=<jwt>.";
    throw new KhalaError("upgrade_required", message);
  });
}

/** The policy for a busy conversation, from `?policy=`. */
export function policyOf(request: FastifyRequest): string | undefined {
  const { policy } = request.query as { policy?: string | string[] };
  return Array.isArray(policy) ? policy[0] : policy;
}

/** The traceparent of a request. */
export function traceOf({ headers }: FastifyRequest): string | undefined {
  const { traceparent } = headers;
  return Array.isArray(traceparent) ? traceparent[0] : traceparent;
}

function convIdOf(request: FastifyRequest): string {
  return readConvId((request.params as { id: string }).id, "id");
}

/** The request of the AI SDK, not validated yet. */
interface Sent {
  readonly id?: unknown;
  readonly messages?: unknown;
  readonly trigger?: unknown;
  readonly messageId?: unknown;
}

interface SentMessage {
  readonly id?: unknown;
  readonly role?: unknown;
  readonly parts?: unknown;
  readonly metadata?: unknown;
}

/**
 * Reads the request of an AI SDK chat: the last message is the user's; earlier ones are stored. `params` is what the app
 * adds to the request, its `body`; the message's metadata is in it as `metadata`. An edited message keeps its id in the
 * client, and `regenerate()` also sends a message again that has never arrived.
 */
export function readAiRequest(sent: Sent, params: object, policy: string | undefined): ChatCommand {
  const { id, messages, trigger = "submit-message", messageId } = sent;
  if (trigger !== "submit-message" && trigger !== "regenerate-message")
    throw invalid("trigger", "trigger must be submit-message or regenerate-message.");
  const last = Object(Array.isArray(messages) ? messages.at(-1) : undefined) as SentMessage;
  if (last.role !== "user") {
    const message =
      "The last message must be from the user, or from the assistant with answers to its tool calls.";
    throw invalid("messages", message);
  }
  const parts = readUiParts(last.parts, `messages[${(messages as unknown[]).length - 1}].parts`);
  if (parts.length === 0)
    throw invalid("messages", "The last message is empty. Send at least one text or file.");
  const command = {
    conv_id: readConvId(id, "id"),
    parts,
    ...readParams({ metadata: last.metadata, ...params }),
    ...(policy !== undefined && { policy }),
  };
  const isNew = trigger === "submit-message" && messageId === undefined;
  const lastId = idOf(last.id);
  // The client makes the id of a message once, so it identifies a repeated request.
  if (isNew && lastId !== undefined)
    return { ...readChat({ ...command, idempotency_key: lastId }), messageId: lastId };
  if (isNew) return readChat(command);
  if (trigger === "submit-message")
    return { ...readChat(command), messageId: idOf(messageId), resent: "edit" };
  return { ...readChat(command), messageId: lastId, resent: "regenerate", answerId: idOf(messageId) };
}

function idOf(sent: unknown): string | undefined {
  return typeof sent === "string" && sent !== "" ? sent : undefined;
}
