import type { CallDecision } from "../../conversations/waiting/decide.ts";
import { invalid } from "../../kit/invalid.ts";
import { readConvId } from "../http/conversation_request.ts";
import type { Continuation } from "./continued_run.ts";

/** A message of AG-UI, not validated yet. */
interface SentMessage {
  readonly id?: unknown;
  readonly role?: unknown;
  readonly content?: unknown;
  readonly error?: unknown;
  readonly toolCallId?: unknown;
  readonly toolCalls?: unknown;
}

const MAX_TEXT = 1_000;

/**
 * Reads the request with which an agent continues: the outputs of its frontend tools, which are the last messages, or answers
 * to interrupts in `resume`. Undefined for every other request.
 */
export function readAgUiContinuation(body: unknown): Continuation | undefined {
  const { threadId, messages: sent, resume } = Object(body) as Record<string, unknown>;
  const messages = Array.isArray(sent) ? sent.map((message) => Object(message) as SentMessage) : [];
  const last = messages.findLastIndex(({ role }) => role !== "tool");
  const outputs = messages.slice(last + 1);
  const answers = Array.isArray(resume) ? resume : [];
  if (outputs.length === 0 && answers.length === 0) return undefined;
  const executed = outputs.flatMap(({ toolCallId }) => (typeof toolCallId === "string" ? toolCallId : []));
  return {
    convId: readConvId(threadId, "threadId"),
    decisions: [
      ...outputs.map((message, i) => outputOf(message, `messages[${last + 1 + i}]`)),
      ...answers.map((answer, i) => answerOf(answer, `resume[${i}]`)),
    ],
    known: {
      messages: messages.flatMap(({ id }) => (typeof id === "string" ? id : [])),
      calls: messages.flatMap(({ toolCalls }) => (Array.isArray(toolCalls) ? toolCalls.map(idOf) : [])),
      executed,
    },
  };
}

function idOf(call: unknown): string {
  return String((Object(call) as { id?: unknown }).id);
}

function outputOf({ toolCallId, content, error }: SentMessage, field: string): CallDecision {
  if (typeof toolCallId !== "string")
    throw invalid(`${field}.toolCallId`, "A tool message needs a toolCallId.");
  if (typeof error === "string" && error !== "")
    return { callId: toolCallId, decision: { error: error.slice(0, MAX_TEXT) } };
  if (typeof content !== "string")
    throw invalid(
      `${field}.content`,
      "The output of a tool must be a string. Send structured data as JSON text.",
    );
  return { callId: toolCallId, decision: { output: content } };
}

/** An interrupt that is cancelled denies the call. */
function answerOf(answer: unknown, field: string): CallDecision {
  const { interruptId, status, payload } = Object(answer) as Record<string, unknown>;
  if (typeof interruptId !== "string")
    throw invalid(`${field}.interruptId`, "An answer needs an interruptId.");
  const { approved, reason } = Object(payload) as { approved?: unknown; reason?: unknown };
  const given = typeof payload === "boolean" ? payload : approved;
  if (status !== "cancelled" && typeof given !== "boolean")
    throw invalid(`${field}.payload`, 'The payload is {"approved": true or false, "reason"?}.');
  const why = typeof reason === "string" && reason !== "" && { reason: reason.slice(0, MAX_TEXT) };
  return { callId: interruptId, decision: { approve: status !== "cancelled" && given === true, ...why } };
}
