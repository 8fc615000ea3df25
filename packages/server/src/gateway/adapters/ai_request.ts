import { KhalaError } from "@khala/contracts";
import type { ChatCommand } from "../../conversations/plane.ts";
import { readChat } from "../http/conversation_request.ts";

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
}

/** Reads what an AI SDK chat sends: the last message is what the person said; what was said before is in the log. */
export function readAiRequest(body: unknown, policy: string | undefined): ChatCommand {
  const { id, messages, trigger = "submit-message", messageId } = Object(body) as Sent;
  if (trigger !== "submit-message" && trigger !== "regenerate-message")
    throw invalid("trigger", "trigger is submit-message or regenerate-message.");
  const last = Object(Array.isArray(messages) ? messages.at(-1) : undefined) as SentMessage;
  if (last.role !== "user") {
    const message =
      "The last of messages is what the user says. Tools run on the server: their results are not sent.";
    throw invalid("messages", message);
  }
  const said = textOf(last.parts);
  if (said === "") throw invalid("messages", "The last message has no text. Send at least one text part.");
  const key = idempotencyKey(trigger, last.id, messageId);
  const command = readChat({
    conv_id: id,
    message: said,
    ...(key !== undefined && { idempotency_key: key }),
    ...(policy !== undefined && { policy }),
  });
  // Said again, as an edit or for another answer, it is a new message: an id names one message for ever.
  return key !== undefined && key === last.id ? { ...command, messageId: key } : command;
}

/** The text of a message, as the AI SDK and AG-UI write them. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  const texts = content.map((part) => Object(part) as { type?: unknown; text?: unknown });
  return texts.map(({ type, text }) => (type === "text" && typeof text === "string" ? text : "")).join("");
}

/**
 * The client makes the id of a message once, so it tells whether a request is the same again. For an edit, and for one
 * more answer to the same message, it does not: these have a key only if they name the answer that they replace.
 */
function idempotencyKey(trigger: string, id: unknown, messageId: unknown): string | undefined {
  if (typeof id !== "string" || id === "") return undefined;
  if (trigger === "submit-message") return messageId === undefined ? id : undefined;
  return typeof messageId === "string" && messageId !== id ? `${trigger}:${id}:${messageId}` : undefined;
}

function invalid(field: string, message: string): KhalaError {
  return new KhalaError("invalid_request", message, { field });
}
