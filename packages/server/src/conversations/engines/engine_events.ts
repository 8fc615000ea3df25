import { fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import { type EventJson, EventSchema, type RunFinishedJson } from "@khala/contracts/conversation/v1";

/** What an engine said, checked: an event to publish, or the end. */
export type Said = { readonly event: EventJson } | { readonly finished: RunFinishedJson };

/** Checks what an engine yields, and fills in what the turn says. Throws an error that people can read. */
export function readEngineEvent(value: unknown, turn: { messageId: string; now: () => number }): Said {
  const delta = plainTextDelta(value);
  if (delta)
    return { event: { text_delta: { message_id: delta.message_id || turn.messageId, text: delta.text } } };
  const event = checked(value);
  const { run_finished: finished } = event;
  if (finished) return { finished };
  if (event.run_started || event.run_failed || event.run_stopped)
    throw new Error("The engine sent an event that only the server may send.");
  for (const kind of [
    "reasoning_delta",
    "text_delta",
    "tool_call",
    "tool_result",
    "custom",
    "message",
  ] as const) {
    const body = event[kind];
    if (body && !body.message_id) body.message_id = turn.messageId;
  }
  if (event.message) {
    event.message.role ||= "assistant";
    event.message.created_at ||= new Date(turn.now()).toISOString();
  }
  return { event };
}

/** The most frequent event by far is not worth a schema. */
function plainTextDelta(value: unknown): { message_id?: string; text: string } | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const keys = Object.keys(value);
  if (keys.length !== 1 || keys[0] !== "text_delta") return undefined;
  const delta = (value as { text_delta: unknown }).text_delta;
  if (typeof delta !== "object" || delta === null) return undefined;
  const { message_id, text, ...rest } = delta as { message_id?: unknown; text?: unknown };
  if (typeof text !== "string" || Object.keys(rest).length > 0) return undefined;
  if (message_id === undefined) return { text };
  return typeof message_id === "string" ? { message_id, text } : undefined;
}

function checked(value: unknown): EventJson {
  let event: EventJson;
  try {
    event = toJson(EventSchema, fromJson(EventSchema, value as JsonValue));
  } catch (error) {
    throw new Error("The engine sent an event that nobody knows.", { cause: error });
  }
  if (Object.keys(event).length === 0) throw new Error("The engine sent an event that nobody knows.");
  return event;
}
