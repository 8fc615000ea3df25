import { KhalaError, SCOPES } from "@khala/contracts";
import type { FastifyRequest } from "fastify";
import type { Context } from "../../kit/context.ts";
import { requireScope, type Viewer } from "../auth/claims.ts";
import { callerOf, readConvId } from "../http/conversation_request.ts";
import type { Http } from "../http/http.ts";
import { type AdapterOptions, answerWithRun } from "./ai_answer.ts";
import { AiChunks } from "./ai_chunks.ts";
import { readAiRequest } from "./ai_request.ts";
import { joinRun, startRun } from "./ai_run.ts";

const FORM = { headers: { "x-vercel-ai-ui-message-stream": "v1" }, last: "data: [DONE]\n\n" };

/**
 * `/ai/chat` for `DefaultChatTransport` of the AI SDK, 5 to 7: POST sends and streams, GET `/:id/stream` resumes, POST or
 * DELETE `/:id/stop` stops. Who leaves the stream leaves the run alone, so a client's own `stop()` needs the last one too.
 * Only the last message is read: `prepareSendMessagesRequest` may leave the others out, which keeps requests small.
 */
export function aiRoutes(http: Http, context: Context, options: AdapterOptions): void {
  const { conversations } = options;

  http.app.post("/ai/chat", async (request, reply) => {
    const viewer = await viewerOf(request);
    const command = readAiRequest(request.body, policyOf(request));
    const run = await startRun(context, conversations, callerOf(viewer), command, traceOf(request));
    const words = new AiChunks(run.runId);
    await answerWithRun(reply, context, options, { viewer, run, words, first: [], ...FORM });
  });

  // Without HEAD, which would wait for the end of the run as well.
  http.app.get("/ai/chat/:id/stream", { exposeHeadRoute: false }, async (request, reply) => {
    const viewer = await viewerOf(request);
    const run = await joinRun(conversations, callerOf(viewer), convIdOf(request));
    if (!run) return reply.code(204).header("Cache-Control", "no-store").send();
    const words = new AiChunks(run.runId);
    await answerWithRun(reply, context, options, {
      viewer,
      run,
      words,
      first: words.replay(run.messages),
      ...FORM,
    });
  });

  for (const method of ["POST", "DELETE"]) {
    http.app.route({
      method,
      url: "/ai/chat/:id/stop",
      handler: async (request) => {
        const viewer = await viewerOf(request);
        return conversations.stopRun(callerOf(viewer), convIdOf(request));
      },
    });
  }

  http.app.get("/ai/ws", async () => {
    const message = "This is a WebSocket. Give its address to WebSocketChatTransport, with ?token=<jwt>.";
    throw new KhalaError("upgrade_required", message);
  });

  async function viewerOf(request: FastifyRequest): Promise<Viewer> {
    const viewer = await http.viewer(request);
    requireScope(viewer, SCOPES.chat);
    return viewer;
  }
}

/** What to do in a busy conversation, from `?policy=`. */
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
  return readConvId((request.params as { id: string }).id);
}
