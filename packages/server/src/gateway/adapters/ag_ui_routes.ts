import type { ChatCommand } from "../../conversations/plane.ts";
import type { Context } from "../../kit/context.ts";
import { invalid } from "../../kit/invalid.ts";
import { readChat, readConvId } from "../http/conversation_request.ts";
import type { Handler, Http } from "../http/http.ts";
import { readAgUiContinuation } from "./ag_ui_continuation.ts";
import { AgUiEvents } from "./ag_ui_events.ts";
import { policyOf, traceOf } from "./ai_routes.ts";
import { startRun } from "./ai_run.ts";
import { continueRun } from "./continued_run.ts";
import { readAgUiContent, readParams } from "./message_parts.ts";
import { type AdapterOptions, respondWithRun } from "./run_response.ts";

/**
 * `POST /ag-ui` for `HttpAgent` of AG-UI: a thread is a conversation, and a `runId` starts one run, however often it is
 * sent. `abortRun()` only leaves the stream, unless the agent's `fetch` is `stopOnAbort` of the client.
 */
export function agUiRoutes(http: Http, context: Context, options: AdapterOptions): void {
  const answer: Handler = async (viewer, request, reply) => {
    const { conversations, live } = options;
    live.enter(viewer, reply);
    const input = readInput(request.body);
    const continuation = readAgUiContinuation(request.body);
    const run = continuation
      ? await continueRun(options, { viewer, address: request.ip }, continuation)
      : await startRun(
          context,
          conversations,
          viewer,
          readCommand(input, policyOf(request)),
          traceOf(request),
        );
    const translator = new AgUiEvents(run.convId, input.runId, continuation?.known);
    const { waits_for = [] } = (run.waits && (await conversations.run(viewer, run.convId))) || {};
    const first = [...translator.begin(), ...(run.waits ? translator.wait(waits_for) : [])];
    await respondWithRun(reply, context, options, { viewer, run, translator, first, root: "" });
  };
  http.route("conversation.write", "POST", "/ag-ui{?policy}", answer, { bodyLimit: options.bodyLimit });
}

/** The request of an agent, not validated yet. */
interface RunAgentInput {
  readonly threadId?: unknown;
  readonly runId: string;
  readonly messages?: unknown;
  readonly tools?: unknown;
  readonly resume?: unknown;
  readonly forwardedProps?: unknown;
  readonly state?: unknown;
  readonly context?: unknown;
}

function readInput(body: unknown): RunAgentInput {
  const input = Object(body) as RunAgentInput;
  if (typeof input.runId !== "string" || input.runId === "")
    throw invalid("runId", "runId must be an id that the client creates.");
  return input;
}

function readCommand(
  { threadId, runId, messages, ...rest }: RunAgentInput,
  policy: string | undefined,
): ChatCommand {
  const last = Object(Array.isArray(messages) ? messages.at(-1) : undefined) as {
    id?: unknown;
    role?: unknown;
    content?: unknown;
  };
  if (last.role !== "user") {
    const message = "The last message must be from the user, or the output of a tool that the client runs.";
    throw invalid("messages", message);
  }
  const parts = readAgUiContent(last.content, `messages[${(messages as unknown[]).length - 1}].content`);
  if (parts.length === 0)
    throw invalid("messages", "The last message is empty. Send text or at least one part.");
  const sent = {
    conv_id: readConvId(threadId, "threadId"),
    parts,
    ...paramsOf(rest),
    tools: toolsOf(rest.tools),
    idempotency_key: runId,
    ...(policy !== undefined && { policy }),
  };
  const command = readChat(sent);
  // A client that cuts its messages back and runs again sends a message that is stored, as it was or changed, or a new one
  // instead of what follows the rest.
  const before = (messages as unknown[]).slice(0, -1).findLast((of) => Object(of).role === "user");
  const [messageId, follows] = [last, before].map(idOf);
  return messageId === undefined ? command : { ...command, messageId, resent: "either", follows };
}

function idOf(message: unknown): string | undefined {
  const { id } = Object(message) as { id?: unknown };
  return typeof id === "string" && /^[\x20-\x7e]{1,200}$/.test(id) ? id : undefined;
}

/** The client's own properties are the params; its state and context are in them by their names. */
function paramsOf({ forwardedProps, state, context }: Omit<RunAgentInput, "runId">): { params?: object } {
  if (!isEmpty(forwardedProps) && (typeof forwardedProps !== "object" || Array.isArray(forwardedProps)))
    throw invalid(
      "forwardedProps",
      "forwardedProps must be an object with the settings of the turn by name.",
    );
  return readParams({
    ...Object(forwardedProps),
    ...(!isEmpty(state) && { state }),
    ...(!isEmpty(context) && { context }),
  });
}

/** The client's own tools. Their other fields are for the client itself. */
function toolsOf(sent: unknown): object[] {
  if (isEmpty(sent)) return [];
  if (!Array.isArray(sent))
    throw invalid("tools", "tools must be a list of objects with name, description and parameters.");
  return sent.map((tool) => {
    const { name, description, parameters } = Object(tool) as Record<string, unknown>;
    const said = description !== undefined && description !== null && { description };
    return { name, ...said, ...(!isEmpty(parameters) && { parameters }) };
  });
}

/** Clients send `{}` and `[]` for what they do not have. */
function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}
