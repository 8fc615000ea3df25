import type {
  PartJson,
  ToolCallJson,
  ToolJson,
  ToolResultJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";

/** The message to change, or to create. */
interface Named {
  readonly id: string;
  readonly runId: string;
  readonly role?: string;
  /** Called only for a new message. */
  truncated(): boolean;
}

/** The messages with one of them changed or created. */
export function changeMessage(
  messages: readonly TranscriptMessageJson[],
  { id, runId, role = "assistant", truncated }: Named,
  change: (message: TranscriptMessageJson) => TranscriptMessageJson,
): readonly TranscriptMessageJson[] {
  // Nearly always the last one.
  const index = messages.findLastIndex(({ message_id }) => message_id === id);
  const there = messages[index];
  if (there) return replaced(messages, index, change(there));
  const begun = {
    message_id: id,
    role,
    run_id: runId,
    parts: [],
    status: "streaming",
    truncated: truncated(),
  };
  return [...messages, change(begun)];
}

/** The message with text appended. */
export function appendText(
  message: TranscriptMessageJson,
  kind: "text" | "reasoning",
  text = "",
): TranscriptMessageJson {
  const { parts = [] } = message;
  const last = parts.at(-1)?.[kind];
  if (last === undefined) return { ...message, parts: [...parts, { [kind]: text }] };
  return { ...message, parts: replaced(parts, parts.length - 1, { [kind]: last + text }) };
}

/** The message with a tool call. */
export function addToolCall(
  message: TranscriptMessageJson,
  { tool_call_id = "", tool = "", input = null }: ToolCallJson,
): TranscriptMessageJson {
  return { ...message, parts: [...(message.parts ?? []), { tool: { tool_call_id, tool, input } }] };
}

/** The message with a tool result, merged with its call. */
export function addToolResult(message: TranscriptMessageJson, result: ToolResultJson): TranscriptMessageJson {
  const { tool_call_id = "", tool = "", output, error } = result;
  const { parts = [] } = message;
  const index = parts.findIndex((part) => part.tool?.tool_call_id === tool_call_id);
  const answered: ToolJson = {
    ...(parts[index]?.tool ?? { tool_call_id, tool }),
    ...(output !== undefined && { output }),
    ...(error !== undefined && { error }),
  };
  const part: PartJson = { tool: answered };
  return { ...message, parts: index < 0 ? [...parts, part] : replaced(parts, index, part) };
}

/** The newer messages, reusing equal objects of the older ones. */
export function reuseObjects(
  before: readonly TranscriptMessageJson[],
  after: readonly TranscriptMessageJson[],
): readonly TranscriptMessageJson[] {
  const known = new Map(before.map((message) => [message.message_id, message]));
  const next = after.map((message) => {
    const old = known.get(message.message_id);
    return old && (old === message || JSON.stringify(old) === JSON.stringify(message)) ? old : message;
  });
  const same = next.length === before.length && next.every((message, i) => message === before[i]);
  return same ? before : next;
}

/** `Array.prototype.with`, which does not exist on every phone. */
function replaced<T>(items: readonly T[], index: number, item: T): T[] {
  const copy = [...items];
  copy[index] = item;
  return copy;
}
