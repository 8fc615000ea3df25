import { KhalaError } from "@khala/contracts";
import type { ChatCommand } from "../../conversations/plane.ts";
import type { Context } from "../../kit/context.ts";
import { readChat } from "../http/conversation_request.ts";
import type { Http } from "../http/http.ts";
import { AgUiEvents } from "./ag_ui_events.ts";
import { policyOf, textOf, traceOf } from "./ai_routes.ts";
import { startRun } from "./ai_run.ts";
import { type AdapterOptions, respondWithRun } from "./run_response.ts";

/**
 * `POST /ag-ui` for `HttpAgent` of AG-UI: a thread is a conversation, and a `runId` starts one run, however often it is
 * sent. `abortRun()` only leaves the stream, unless the agent's `fetch` is `stopOnAbort` of the client.
 */
export function agUiRoutes(http: Http, context: Context, options: AdapterOptions): void {
  http.route("conversation.write", "POST", "/ag-ui", async (viewer, request, reply) => {
    const { command, runId } = readRunAgentInput(request.body, policyOf(request));
    const run = await startRun(context, options.conversations, viewer, command, traceOf(request));
    const translator = new AgUiEvents(command.convId, runId);
    const first = translator.begin();
    await respondWithRun(reply, context, options, { viewer, run, translator, first, root: "" });
  });
}

function readRunAgentInput(
  body: unknown,
  policy: string | undefined,
): { readonly command: ChatCommand; readonly runId: string } {
  const { threadId, runId, messages } = Object(body) as {
    threadId?: unknown;
    runId?: unknown;
    messages?: unknown;
  };
  if (typeof runId !== "string" || runId === "")
    throw invalid("runId", "runId is an id that the client makes.");
  const last = Object(Array.isArray(messages) ? messages.at(-1) : undefined) as {
    role?: unknown;
    content?: unknown;
  };
  if (last.role !== "user") {
    const message =
      "The last message must be the user's. Tools run on the server: do not send their results.";
    throw invalid("messages", message);
  }
  const message = textOf(last.content);
  if (message === "") throw invalid("messages", "The last message has no text. Send a text, or a text part.");
  const sent = {
    conv_id: threadId,
    message,
    idempotency_key: runId,
    ...(policy !== undefined && { policy }),
  };
  return { command: readChat(sent), runId };
}

function invalid(field: string, message: string): KhalaError {
  return new KhalaError("invalid_request", message, { field });
}
