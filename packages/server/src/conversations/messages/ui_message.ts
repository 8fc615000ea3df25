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
    parts: parts.flatMap((part, i) => uiPartOf(part, status === "streaming" && i === last)),
  };
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

function uiToolOf({ tool_call_id, tool, input, output, error }: ToolJson): JsonObject {
  const call = { type: `tool-${tool || "tool"}`, toolCallId: tool_call_id ?? "", input: input ?? null };
  if (error !== undefined) return { ...call, state: "output-error", errorText: error };
  if (output !== undefined) return { ...call, state: "output-available", output };
  return { ...call, state: "input-available" };
}
