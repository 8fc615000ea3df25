import type { EventJson } from "@khala/contracts/conversation/v1";

/** The roles of messages. */
export const ROLES: readonly string[] = ["user", "assistant", "system"];

const WITH_MESSAGE = [
  "message",
  "custom",
  "text_delta",
  "reasoning_delta",
  "tool_call",
  "tool_result",
  "tool_approval_requested",
  "file_added",
  "source_added",
] as const satisfies (keyof EventJson)[];

/** The id of the message that an event is, or is part of. */
export function messageIdOf(event: EventJson): string | undefined {
  const kind = WITH_MESSAGE.find((of) => event[of] !== undefined);
  return (kind && event[kind]?.message_id) || undefined;
}
