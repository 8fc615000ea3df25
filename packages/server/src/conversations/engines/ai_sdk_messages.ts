import type { PartJson, ToolJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { AssistantModelMessage, ModelMessage, ToolModelMessage } from "ai";
import type { Turn } from "./engine.ts";

type AssistantPart = Exclude<AssistantModelMessage["content"], string>[number];
type ToolPart = ToolModelMessage["content"][number];
type ToolOutput = Extract<ToolPart, { type: "tool-result" }>["output"];

/** What was said before and what is said now, as the AI SDK wants it. */
export function modelMessages({ history, message }: Turn): ModelMessage[] {
  return [...history.flatMap(modelMessage), { role: "user", content: message }];
}

function modelMessage({ role = "assistant", parts = [] }: TranscriptMessageJson): ModelMessage[] {
  if (role === "assistant") return assistantMessages(parts);
  const content = parts.map(({ text = "" }) => text).join("");
  if (content === "") return [];
  return [role === "system" ? { role, content } : { role: "user", content }];
}

/**
 * Results are messages of their own, after the calls that they answer. Reasoning stays behind: a provider takes back
 * only what it signed itself.
 */
function assistantMessages(parts: readonly PartJson[]): ModelMessage[] {
  const messages: ModelMessage[] = [];
  let said: AssistantPart[] = [];
  let results: ToolPart[] = [];
  const flush = () => {
    if (said.length > 0) messages.push({ role: "assistant", content: said });
    if (results.length > 0) messages.push({ role: "tool", content: results });
    said = [];
    results = [];
  };
  for (const { text, tool } of parts) {
    if (text) {
      if (results.length > 0) flush();
      said.push({ type: "text", text });
    } else if (tool) {
      const { tool_call_id: toolCallId = "", tool: toolName = "", input = null } = tool;
      said.push({ type: "tool-call", toolCallId, toolName, input });
      results.push({ type: "tool-result", toolCallId, toolName, output: toolOutput(tool) });
    }
  }
  flush();
  return messages;
}

/** Every call needs an answer, also one that was cut short, or the provider refuses the history. */
function toolOutput({ output, error }: ToolJson): ToolOutput {
  if (error !== undefined) return { type: "error-text", value: error };
  if (output === undefined) return { type: "error-text", value: "The call was broken off." };
  return { type: "json", value: output };
}
