import type {
  BranchChangedJson,
  EventJson,
  MessageJson,
  PartJson,
  RunResumedJson,
  ToolApprovalDecidedJson,
  ToolCallJson,
  ToolJson,
  ToolResultJson,
  TranscriptMessageJson,
} from "./conversation_v1.ts";

type Messages = readonly TranscriptMessageJson[];

/**
 * The messages of a conversation after one more event of its log; the same array when none changed. The server stores and the
 * client shows what this makes. Objects that did not change stay the same.
 */
export function foldMessages(messages: Messages, runId: string, event: EventJson): Messages {
  const change = (id: string | undefined, make: (message: TranscriptMessageJson) => TranscriptMessageJson) =>
    changeMessage(messages, { id: id ?? "", runId }, make);
  const { message, text_delta, reasoning_delta, tool_call, tool_result, custom } = event;
  const { file_added, source_added, run_resumed, branch_changed } = event;
  if (message) return replaceMessage(messages, runId, message);
  if (text_delta) return change(text_delta.message_id, (there) => appendText(there, "text", text_delta.text));
  if (reasoning_delta)
    return change(reasoning_delta.message_id, (there) =>
      appendText(there, "reasoning", reasoning_delta.text),
    );
  if (tool_call) return change(tool_call.message_id, (there) => addToolCall(there, tool_call));
  if (tool_result) return change(tool_result.message_id, (there) => addToolResult(there, tool_result));
  const decided = event.tool_approval_requested ?? event.tool_approval_decided;
  if (decided) return decideToolCall(messages, decided);
  if (file_added?.file) {
    const { message_id, file } = file_added;
    return change(message_id, (there) => addPart(there, { file }));
  }
  if (source_added?.source) {
    const { message_id, source } = source_added;
    return change(message_id, (there) => addPart(there, { source }));
  }
  // One without a message is an event, and part of none.
  if (custom?.message_id) return change(custom.message_id, (there) => addPart(there, { custom }));
  if (run_resumed) return cutBack(messages, runId, run_resumed);
  if (branch_changed) return switchBranch(messages, branch_changed);
  if (event.run_finished) return endMessages(messages, runId, "done");
  if (event.run_failed) return endMessages(messages, runId, "failed");
  if (event.run_stopped) return endMessages(messages, runId, "stopped");
  return messages;
}

/** Another branch is active: it replaces what follows its parent, or everything, if the parent is unknown. */
function switchBranch(messages: Messages, { parent_id, messages: branch = [] }: BranchChangedJson): Messages {
  const last = messages.findLastIndex(({ message_id }) => message_id === parent_id);
  return [...messages.slice(0, last + 1), ...branch];
}

/** The messages after the end of a run. */
function endMessages(messages: Messages, runId: string, status: string): Messages {
  const streams = (message: TranscriptMessageJson) =>
    message.run_id === runId && message.status === "streaming";
  if (!messages.some(streams)) return messages;
  return messages.map((message) => (streams(message) ? { ...message, status } : message));
}

/** The messages with one of them changed, or created: then it follows the last one, and has the time of its run. */
function changeMessage(
  messages: Messages,
  { id, runId }: { readonly id: string; readonly runId: string },
  change: (message: TranscriptMessageJson) => TranscriptMessageJson,
): Messages {
  // Nearly always the last one.
  const index = messages.findLastIndex(({ message_id }) => message_id === id);
  const there = messages[index];
  if (there) return replaced(messages, index, change(there));
  const parentId = messages.at(-1)?.message_id;
  const createdAt = createdAtOf(messages, runId);
  const begun = {
    message_id: id,
    role: "assistant",
    run_id: runId,
    parts: [],
    status: "streaming",
    ...(parentId && { parent_id: parentId }),
    ...(createdAt && { created_at: createdAt }),
  };
  return append(messages, change(begun));
}

/** The messages with a whole one, in the place of the one with its id. */
function replaceMessage(messages: Messages, runId: string, message: MessageJson): Messages {
  const { message_id: id = "", role = "assistant", text = "", parts = [], author, created_at } = message;
  const index = messages.findLastIndex(({ message_id }) => message_id === id);
  const known = messages[index];
  const parent_id = message.parent_id || (known ? known.parent_id : messages.at(-1)?.message_id);
  const siblings = message.siblings ?? known?.siblings;
  const replies = message.replies ?? known?.replies;
  const whole: TranscriptMessageJson = {
    message_id: id,
    role,
    run_id: runId,
    parts: parts.length > 0 ? parts : [{ text }],
    status: "done",
    ...(parent_id && { parent_id }),
    ...(author && { author }),
    ...(created_at && { created_at }),
    ...(siblings && { siblings }),
    ...(replies && { replies }),
  };
  return known ? replaced(messages, index, whole) : append(messages, whole);
}

/** The messages with a new one, which has the replies to its parent in other branches as its siblings. */
function append(messages: Messages, message: TranscriptMessageJson): Messages {
  const index = messages.findLastIndex(
    ({ message_id, replies }) => message_id === message.parent_id && replies !== undefined,
  );
  const parent = messages[index];
  if (!parent) return [...messages, message];
  const { replies = [], ...rest } = parent;
  const id = message.message_id ?? "";
  const siblings = message.siblings ?? [...replies.filter((other) => other !== id), id];
  return [...replaced(messages, index, rest), { ...message, siblings }];
}

/** The messages after a run was resumed: its own are cut back to those that are kept. What a person wrote stays. */
function cutBack(messages: Messages, runId: string, { kept = [] }: RunResumedJson): Messages {
  const counts = new Map(kept.map(({ message_id = "", parts = 0 }) => [message_id, parts]));
  const isOwn = ({ run_id, role }: TranscriptMessageJson) => run_id === runId && role !== "user";
  const gone = new Map<string | undefined, TranscriptMessageJson>();
  /** The siblings of messages that are removed, by their parent, unless another one takes their place. */
  const left = new Map<string | undefined, string[]>();
  const rest: TranscriptMessageJson[] = [];
  for (const message of messages) {
    const removed = gone.get(message.parent_id);
    const placed = removed ? inPlaceOf(removed, message) : message;
    const { message_id: id = "", parent_id, siblings, parts = [] } = placed;
    const count = isOwn(message) ? counts.get(id) : parts.length;
    if (count === undefined) {
      gone.set(id, placed);
      if (siblings)
        left.set(
          parent_id,
          siblings.filter((other) => other !== id),
        );
    } else {
      if (siblings) left.delete(parent_id);
      rest.push(parts.length > count ? { ...placed, parts: parts.slice(0, count) } : placed);
    }
  }
  return rest.map((message) => {
    const replies = left.get(message.message_id);
    return replies ? { ...message, replies } : message;
  });
}

/** A message that followed one that is removed, in its place. */
function inPlaceOf(removed: TranscriptMessageJson, message: TranscriptMessageJson): TranscriptMessageJson {
  const { parent_id: _, ...rest } = message;
  const { message_id: id, parent_id, siblings } = removed;
  const others = siblings?.filter((other) => other !== id && other !== message.message_id);
  return {
    ...rest,
    ...(parent_id && { parent_id }),
    ...(others && { siblings: [...others, message.message_id!] }),
  };
}

function createdAtOf(messages: Messages, runId: string): string | undefined {
  return runId === "" ? undefined : messages.findLast(({ run_id }) => run_id === runId)?.created_at;
}

/** The message with one more part. */
function addPart(message: TranscriptMessageJson, part: PartJson): TranscriptMessageJson {
  return { ...message, parts: [...(message.parts ?? []), part] };
}

/** The message with text appended. */
function appendText(
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
function addToolCall(
  message: TranscriptMessageJson,
  { tool_call_id = "", tool = "", input = null, waits_for }: ToolCallJson,
): TranscriptMessageJson {
  return addPart(message, { tool: { tool_call_id, tool, input, ...(waits_for && { waits_for }) } });
}

/** The messages with a tool call that needs a decision, or has it. */
function decideToolCall(
  messages: Messages,
  { message_id = "", tool_call_id, decision }: ToolApprovalDecidedJson,
): Messages {
  const at = messages.findLastIndex((message) => message.message_id === message_id);
  const { parts = [] } = messages[at] ?? {};
  const index = parts.findIndex(({ tool }) => tool?.tool_call_id === tool_call_id);
  const tool = parts[index]?.tool;
  if (!tool) return messages;
  const decided = { tool: { ...tool, waits_for: "approval", ...(decision && { decision }) } };
  return replaced(messages, at, { ...messages[at], parts: replaced(parts, index, decided) });
}

/** The message with a tool result, merged with its call. */
function addToolResult(message: TranscriptMessageJson, result: ToolResultJson): TranscriptMessageJson {
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

/** `Array.prototype.with`, which does not exist on every phone. */
function replaced<T>(items: readonly T[], index: number, item: T): T[] {
  const copy = [...items];
  copy[index] = item;
  return copy;
}
