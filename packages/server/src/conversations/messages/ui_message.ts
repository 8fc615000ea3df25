import type { JsonObject } from "@bufbuild/protobuf";
import type {
  PartJson,
  ToolJson,
  TranscriptMessageJson,
  UiMessageJson,
} from "@khala/contracts/conversation/v1";

/** A message as the AI SDK's `UIMessage`. */
export function uiMessageOf(message: TranscriptMessageJson): UiMessageJson {
  const { message_id: id = "", role = "assistant", parts = [] } = message;
  const { created_at, status = "done", run_id, author, siblings = [] } = message;
  const last = parts.length - 1;
  return {
    id,
    role,
    metadata: {
      ...(created_at && { created_at }),
      status,
      ...(run_id && { run_id }),
      ...(author && { author }),
      ...(siblings.length > 0 && { siblings }),
    },
    parts: parts.flatMap((part, i) =>
      uiPartOf(BROKEN.has(status) ? interrupted(part) : part, status === "streaming" && i === last),
    ),
  };
}

/** The run of the message ended before the answer did. */
const BROKEN: ReadonlySet<string> = new Set(["stopped", "failed"]);

/** A call that nobody executes or decides any more: without an end, a page would offer to approve it. */
function interrupted(part: PartJson): PartJson {
  const { tool } = part;
  if (!tool || tool.output !== undefined || tool.error !== undefined) return part;
  return { ...part, tool: { ...tool, error: "The call was interrupted." } };
}

/** A part as the AI SDK knows it; none for a part that is of a newer version. */
function uiPartOf(part: PartJson, growing: boolean): JsonObject[] {
  const state = growing ? "streaming" : "done";
  const { text, reasoning, tool, custom, file, source } = part;
  if (text !== undefined) return [{ type: "text", text, state }];
  if (reasoning !== undefined) return [{ type: "reasoning", text: reasoning, state }];
  if (tool) return [uiToolOf(tool)];
  if (custom) return [{ type: `data-${custom.name || "custom"}`, data: custom.data ?? null }];
  if (file) {
    const { url = "", media_type: mediaType = "application/octet-stream", name } = file;
    return [{ type: "file", mediaType, url, ...(name && { filename: name }) }];
  }
  if (source) {
    const { source_id: sourceId = "", url = "", title } = source;
    return [{ type: "source-url", sourceId, url, ...(title && { title }) }];
  }
  return [];
}

/** The approval of a call has the call's id. */
function uiToolOf({
  tool_call_id: id = "",
  tool,
  input,
  output,
  error,
  waits_for,
  decision,
}: ToolJson): JsonObject {
  const { approved = false, reason } = decision ?? {};
  const approval = decision && { approval: { id, approved, ...(reason && { reason }) } };
  const call = { type: `tool-${tool || "tool"}`, toolCallId: id, input: input ?? null, ...approval };
  if (decision && !approved) return { ...call, state: "output-denied" };
  if (error !== undefined) return { ...call, state: "output-error", errorText: error };
  if (output !== undefined) return { ...call, state: "output-available", output };
  if (decision) return { ...call, state: "approval-responded" };
  if (waits_for === "approval") return { ...call, state: "approval-requested", approval: { id } };
  return { ...call, state: "input-available" };
}
