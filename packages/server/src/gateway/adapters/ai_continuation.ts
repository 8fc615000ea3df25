import type { DecideToolRequestJson } from "@khala/contracts/conversation/v1";
import { readConvId } from "../http/conversation_request.ts";
import type { Continuation } from "./continued_run.ts";

/** A part of an AI SDK message, not validated yet. */
interface SentPart {
  readonly type?: unknown;
  readonly toolCallId?: unknown;
  readonly state?: unknown;
  readonly output?: unknown;
  readonly errorText?: unknown;
  readonly providerExecuted?: unknown;
  readonly approval?: { readonly approved?: unknown; readonly reason?: unknown };
}

const MAX_ERROR = 1_000;

/**
 * Reads the request with which an AI SDK chat answers its assistant: the last message is the assistant's, with approvals
 * (`addToolApprovalResponse`) and outputs (`addToolOutput`). Undefined for every other request.
 */
export function readAiContinuation(sent: {
  readonly id?: unknown;
  readonly messages?: unknown;
  readonly trigger?: unknown;
}): Continuation | undefined {
  const { id, messages, trigger = "submit-message" } = sent;
  const last = Object(Array.isArray(messages) ? messages.at(-1) : undefined) as {
    id?: unknown;
    role?: unknown;
    parts?: unknown;
  };
  if (trigger !== "submit-message" || last.role !== "assistant" || !Array.isArray(last.parts))
    return undefined;
  const tools = last.parts.map((part) => Object(part) as SentPart).filter(isTool);
  const decisions = tools.flatMap((part) => {
    const decision = decisionOf(part);
    return decision ? [{ callId: part.toolCallId, decision }] : [];
  });
  const calls = tools.map(({ toolCallId }) => toolCallId);
  const executed = decisions.flatMap(({ callId, decision }) =>
    decision.approve === undefined ? callId : [],
  );
  const known = typeof last.id === "string" ? [last.id] : [];
  return { convId: readConvId(id, "id"), decisions, known: { messages: known, calls, executed } };
}

function isTool(part: SentPart): part is SentPart & { readonly toolCallId: string } {
  const { type, toolCallId } = part;
  return typeof type === "string" && /^(tool-|dynamic-tool$)/.test(type) && typeof toolCallId === "string";
}

/** The decision in a tool part. The output of an approved tool came from the server. */
function decisionOf(part: SentPart): DecideToolRequestJson | undefined {
  const { state, output, errorText, providerExecuted, approval } = part;
  if (approval) {
    if (typeof approval.approved !== "boolean") return undefined;
    const { approved: approve, reason } = approval;
    return { approve, ...(typeof reason === "string" && reason !== "" && { reason }) };
  }
  if (providerExecuted === true) return undefined;
  if (state === "output-available" && output !== undefined) return { output: output as string };
  if (state === "output-error") return { error: String(errorText ?? "The tool failed.").slice(0, MAX_ERROR) };
  return undefined;
}
