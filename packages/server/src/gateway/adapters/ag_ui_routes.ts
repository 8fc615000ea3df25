import type { ChatCommand } from "../../conversations/plane.ts";
import type { Context } from "../../kit/context.ts";
import { readChat } from "../http/conversation_request.ts";
import type { Handler, Http } from "../http/http.ts";
import { AgUiEvents } from "./ag_ui_events.ts";
import { policyOf, traceOf } from "./ai_routes.ts";
import { startRun } from "./ai_run.ts";
import { invalid, readAgUiContent, readParams } from "./message_parts.ts";
import { type AdapterOptions, respondWithRun } from "./run_response.ts";

/**
 * `POST /ag-ui` for `HttpAgent` of AG-UI: a thread is a conversation, and a `runId` starts one run, however often it is
 * sent. `abortRun()` only leaves the stream, unless the agent's `fetch` is `stopOnAbort` of the client.
 */
export function agUiRoutes(http: Http, context: Context, options: AdapterOptions): void {
  const answer: Handler = async (viewer, request, reply) => {
    const { command, runId } = readRunAgentInput(request.body, policyOf(request));
    const run = await startRun(context, options.conversations, viewer, command, traceOf(request));
    const translator = new AgUiEvents(command.convId, runId);
    const first = translator.begin();
    await respondWithRun(reply, context, options, { viewer, run, translator, first, root: "" });
  };
  http.route("conversation.write", "POST", "/ag-ui", answer, { bodyLimit: options.bodyLimit });
}

/** What an agent sends, not validated yet. */
interface RunAgentInput {
  readonly threadId?: unknown;
  readonly runId?: unknown;
  readonly messages?: unknown;
  readonly tools?: unknown;
  readonly resume?: unknown;
  readonly forwardedProps?: unknown;
  readonly state?: unknown;
  readonly context?: unknown;
}

function readRunAgentInput(
  body: unknown,
  policy: string | undefined,
): { readonly command: ChatCommand; readonly runId: string } {
  const { threadId, runId, messages, ...rest } = Object(body) as RunAgentInput;
  if (typeof runId !== "string" || runId === "")
    throw invalid("runId", "runId is an id that the client makes.");
  const last = Object(Array.isArray(messages) ? messages.at(-1) : undefined) as {
    id?: unknown;
    role?: unknown;
    content?: unknown;
  };
  if (last.role !== "user") {
    const message =
      "The last message must be the user's. Tools run on the server: do not send their results.";
    throw invalid("messages", message);
  }
  const parts = readAgUiContent(last.content, `messages[${(messages as unknown[]).length - 1}].content`);
  if (parts.length === 0)
    throw invalid("messages", "The last message is empty. Send a text, or at least one part.");
  const sent = {
    conv_id: threadId,
    parts,
    ...paramsOf(rest),
    idempotency_key: runId,
    ...(policy !== undefined && { policy }),
  };
  const command = readChat(sent);
  // A client that cuts its messages back and runs again sends a message that is stored: as it was, or changed.
  const { id } = last;
  const named = typeof id === "string" && /^[\x20-\x7e]{1,200}$/.test(id);
  return { command: named ? { ...command, messageId: id, resent: "either" } : command, runId };
}

/** The client's own properties are the params; its state and context are in them by their names. */
function paramsOf({ tools, resume, forwardedProps, state, context }: RunAgentInput): { params?: object } {
  if (!isEmpty(tools)) throw invalid("tools", "Tools run on the server: send none.");
  if (!isEmpty(resume)) throw invalid("resume", "Runs are not interrupted here: there is nothing to resume.");
  if (!isEmpty(forwardedProps) && (typeof forwardedProps !== "object" || Array.isArray(forwardedProps)))
    throw invalid("forwardedProps", "forwardedProps is an object: the settings of the turn, by their names.");
  return readParams({
    ...Object(forwardedProps),
    ...(!isEmpty(state) && { state }),
    ...(!isEmpty(context) && { context }),
  });
}

/** Clients send `{}` and `[]` for what they do not have. */
function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}
