import type { CustomJson, PartJson, ToolJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type {
  AssistantModelMessage,
  LanguageModel,
  ModelMessage,
  streamText,
  TextStreamPart,
  ToolModelMessage,
  ToolSet,
} from "ai";
import type { ConversationKey, EngineEvent, EngineFactory, Turn } from "./engine.ts";
import { modelError } from "./model_error.ts";
import { PublicError } from "./public_error.ts";

type StreamTextOptions = Parameters<typeof streamText<ToolSet>>[0];

/** The options that this engine sets itself. */
type EngineOwned =
  | "model"
  | "messages"
  | "prompt"
  | "system"
  | "instructions"
  | "allowSystemInMessages"
  | "tools"
  | "abortSignal"
  | "_internal";

export interface AiSdkOptions {
  /** The system prompt. */
  readonly system?: string | ((turn: Turn) => string | Promise<string>);
  readonly tools?: ToolSet;
  /** The most model calls per turn, when tools are used; 10 unless `stopWhen` is set. */
  readonly maxSteps?: number;
  readonly stopWhen?: NonNullable<StreamTextOptions["stopWhen"]>;
  /** Passed on to `streamText`: temperature, maxOutputTokens, providerOptions and so on. */
  readonly settings?: Omit<StreamTextOptions, EngineOwned | "stopWhen">;
}

/** A model, or a function that picks one per conversation. */
export type ModelChoice = LanguageModel | ((conversation: ConversationKey) => LanguageModel);

/** An engine on the AI SDK. The npm package `ai` is installed by the user. */
export function aiSdk(model: ModelChoice, options: AiSdkOptions = {}): EngineFactory {
  return (conversation) => {
    const chosen = typeof model === "function" ? model(conversation) : model;
    return {
      resumable: true,
      async *run(turn, signal) {
        const { streamText, isStepCount } = await loadAiSdk();
        const { system, tools, maxSteps = 10, stopWhen = isStepCount(maxSteps), settings } = options;
        const instructions = typeof system === "function" ? await system(turn) : system;
        // Leaving the loop below does not end the request to the provider: this does.
        const ended = new AbortController();
        try {
          const { stream } = streamText({
            // Errors are thrown from the stream below.
            onError() {},
            ...settings,
            model: chosen,
            messages: modelMessages(turn),
            // Only an engine can have written system messages.
            allowSystemInMessages: true,
            abortSignal: AbortSignal.any([signal, ended.signal]),
            stopWhen,
            ...(instructions !== undefined && { instructions }),
            ...(tools && { tools }),
          });
          for await (const part of stream) {
            if (signal.aborted) return;
            const event = engineEvent(part, turn);
            if (event) yield event;
          }
        } catch (error) {
          if (signal.aborted) return;
          throw modelError(error);
        } finally {
          ended.abort();
        }
      },
    };
  };
}

function engineEvent(part: TextStreamPart<ToolSet>, turn: Turn): EngineEvent | undefined {
  switch (part.type) {
    case "text-delta":
      return part.text === "" ? undefined : { text_delta: { text: part.text } };
    case "reasoning-delta":
      return part.text === "" ? undefined : { reasoning_delta: { text: part.text } };
    case "tool-call":
      return { tool_call: { ...callOf(part), input: json(part.input) } };
    case "tool-result":
      return part.preliminary ? undefined : { tool_result: { ...callOf(part), output: json(part.output) } };
    case "tool-error":
      return { tool_result: { ...callOf(part), error: toolError(part.error, turn) } };
    case "tool-output-denied":
      return { tool_result: { ...callOf(part), error: "The use of this tool was denied." } };
    case "tool-approval-request":
      return { custom: { name: "tool_approval_request", data: callOf(part.toolCall) } };
    case "source":
      return { custom: { name: "source", data: json(part) } };
    case "file": {
      const { mediaType, base64 } = part.file;
      return { custom: { name: "file", data: { media_type: mediaType, base64 } } };
    }
    case "finish":
      return finishedEvent(part);
    case "error":
      throw part.error;
    case "abort":
      throw new Error(part.reason ?? "the request was aborted");
    default:
      return undefined;
  }
}

function finishedEvent({
  finishReason,
  totalUsage,
}: TextStreamPart<ToolSet> & { type: "finish" }): EngineEvent {
  if (finishReason === "error") throw new Error("the provider gave no reason");
  const { inputTokens, outputTokens } = totalUsage;
  const usage = {
    ...(inputTokens !== undefined && { input_tokens: inputTokens }),
    ...(outputTokens !== undefined && { output_tokens: outputTokens }),
  };
  return { run_finished: { reason: finishReason, usage } };
}

/** What end users see of a tool's exception. */
function toolError(error: unknown, { reportError }: Turn): string {
  if (reportError) return reportError(error);
  return error instanceof PublicError ? error.message : "The tool failed.";
}

function callOf({ toolCallId, toolName }: { toolCallId: string; toolName: string }) {
  return { tool_call_id: toolCallId, tool: toolName };
}

type Json = Exclude<CustomJson["data"], undefined>;

/** A tool's value as JSON: dates become text, undefined becomes null. */
function json(value: unknown): Json {
  const text = JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? String(inner) : inner));
  return text === undefined ? null : JSON.parse(text);
}

async function loadAiSdk() {
  try {
    return await import("ai");
  } catch (cause) {
    const missing = Object(cause).code === "ERR_MODULE_NOT_FOUND";
    const message = missing
      ? "The engine aiSdk needs the npm package `ai`, version 7. Run `npm install ai`."
      : "The npm package `ai` could not be loaded.";
    throw new Error(message, { cause });
  }
}

type AssistantPart = Exclude<AssistantModelMessage["content"], string>[number];
type ToolPart = ToolModelMessage["content"][number];
type ToolOutput = Extract<ToolPart, { type: "tool-result" }>["output"];

/** The history, the new message, and what is kept of an interrupted answer, in the AI SDK's format. */
function modelMessages({ history, message, resume }: Turn): ModelMessage[] {
  const kept = resume?.messages ?? [];
  return [
    ...history.flatMap(modelMessage),
    { role: "user", content: message },
    ...kept.flatMap(modelMessage),
  ];
}

function modelMessage({ role = "assistant", parts = [] }: TranscriptMessageJson): ModelMessage[] {
  if (role === "assistant") return assistantMessages(parts);
  const content = parts.map(({ text = "" }) => text).join("");
  if (content === "") return [];
  return [role === "system" ? { role, content } : { role: "user", content }];
}

/**
 * Tool results are separate messages after their calls. Reasoning is left out: a provider accepts only reasoning that it
 * signed itself.
 */
function assistantMessages(parts: readonly PartJson[]): ModelMessage[] {
  const messages: ModelMessage[] = [];
  let content: AssistantPart[] = [];
  let results: ToolPart[] = [];
  const flush = () => {
    if (content.length > 0) messages.push({ role: "assistant", content });
    if (results.length > 0) messages.push({ role: "tool", content: results });
    content = [];
    results = [];
  };
  for (const { text, tool } of parts) {
    if (text) {
      if (results.length > 0) flush();
      content.push({ type: "text", text });
    } else if (tool) {
      const { tool_call_id: toolCallId = "", tool: toolName = "", input = null } = tool;
      content.push({ type: "tool-call", toolCallId, toolName, input });
      results.push({ type: "tool-result", toolCallId, toolName, output: toolOutput(tool) });
    }
  }
  flush();
  return messages;
}

/** Every call needs a result, even an interrupted one, or the provider refuses the history. */
function toolOutput({ output, error }: ToolJson): ToolOutput {
  if (error !== undefined) return { type: "error-text", value: error };
  if (output === undefined) return { type: "error-text", value: "The call was interrupted." };
  return { type: "json", value: output };
}
