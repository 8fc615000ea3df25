import { KhalaError } from "@khala/contracts";
import type { CustomJson } from "@khala/contracts/conversation/v1";
import type { LanguageModel, streamText, TextStreamPart, ToolSet } from "ai";
import { modelMessages } from "./ai_sdk_messages.ts";
import type { ConversationKey, EngineEvent, EngineFactory, Turn } from "./engine.ts";

type StreamTextOptions = Parameters<typeof streamText<ToolSet>>[0];

/** What this engine sets itself. */
type Own =
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
  /** Instructions to the model. */
  readonly system?: string | ((turn: Turn) => string | Promise<string>);
  readonly tools?: ToolSet;
  /** How often the model may be asked within a turn, to go on after its tools have answered; 10 unless `stopWhen` is set. */
  readonly maxSteps?: number;
  readonly stopWhen?: NonNullable<StreamTextOptions["stopWhen"]>;
  /** Passed to `streamText` as they are: temperature, maxOutputTokens, providerOptions and so on. */
  readonly settings?: Omit<StreamTextOptions, Own | "stopWhen">;
}

/** A model, or which one a conversation has. */
export type ModelChoice = LanguageModel | ((conversation: ConversationKey) => LanguageModel);

/** An engine on the AI SDK, by the npm package `ai`, which the user installs. */
export function aiSdk(model: ModelChoice, options: AiSdkOptions = {}): EngineFactory {
  return (conversation) => {
    const chosen = typeof model === "function" ? model(conversation) : model;
    return {
      async *run(turn, signal) {
        const { streamText, isStepCount } = await loadAiSdk();
        const { system, tools, maxSteps = 10, stopWhen = isStepCount(maxSteps), settings } = options;
        const instructions = typeof system === "function" ? await system(turn) : system;
        // Of its own, because leaving the loop below does not end the request to the provider.
        const leaving = new AbortController();
        try {
          const { stream } = streamText({
            // Errors come out of the stream as well, and are thrown from there.
            onError() {},
            ...settings,
            model: chosen,
            messages: modelMessages(turn),
            // Only an engine can have written them.
            allowSystemInMessages: true,
            abortSignal: AbortSignal.any([signal, leaving.signal]),
            stopWhen,
            ...(instructions !== undefined && { instructions }),
            ...(tools && { tools }),
          });
          for await (const part of stream) {
            if (signal.aborted) return;
            const event = engineEvent(part);
            if (event) yield event;
          }
        } catch (error) {
          if (signal.aborted) return;
          throw readable(error);
        } finally {
          leaving.abort();
        }
      },
    };
  };
}

function engineEvent(part: TextStreamPart<ToolSet>): EngineEvent | undefined {
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
      return { tool_result: { ...callOf(part), error: messageOf(part.error) } };
    case "tool-output-denied":
      return { tool_result: { ...callOf(part), error: "The use of this tool was not allowed." } };
    case "tool-approval-request":
      return { custom: { name: "tool_approval_request", data: callOf(part.toolCall) } };
    case "source":
      return { custom: { name: "source", data: json(part) } };
    case "file": {
      const { mediaType, base64 } = part.file;
      return { custom: { name: "file", data: { media_type: mediaType, base64 } } };
    }
    case "finish":
      return finished(part);
    case "error":
      throw part.error;
    case "abort":
      throw new Error(part.reason ?? "it was aborted");
    default:
      return undefined;
  }
}

function finished({ finishReason, totalUsage }: TextStreamPart<ToolSet> & { type: "finish" }): EngineEvent {
  if (finishReason === "error") throw new Error("it ended with an error and did not say which");
  const { inputTokens, outputTokens } = totalUsage;
  const usage = {
    ...(inputTokens !== undefined && { input_tokens: inputTokens }),
    ...(outputTokens !== undefined && { output_tokens: outputTokens }),
  };
  return { run_finished: { reason: finishReason, usage } };
}

function callOf({ toolCallId, toolName }: { toolCallId: string; toolName: string }) {
  return { tool_call_id: toolCallId, tool: toolName };
}

type Json = Exclude<CustomJson["data"], undefined>;

/** A value of a tool as JSON has it: dates as text, and nothing where there is nothing. */
function json(value: unknown): Json {
  const text = JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? String(inner) : inner));
  return text === undefined ? null : JSON.parse(text);
}

function readable(error: unknown): KhalaError {
  if (error instanceof KhalaError) return error;
  return new KhalaError("unavailable", `The model failed: ${messageOf(error)}`, {}, { cause: error });
}

function messageOf(error: unknown): string {
  if (typeof error === "string") return error;
  const { message, statusCode } = Object(error);
  const text = typeof message === "string" && message !== "" ? message : "no reason was given";
  return typeof statusCode === "number" ? `${text} (status ${statusCode})` : text;
}

async function loadAiSdk() {
  try {
    return await import("ai");
  } catch (cause) {
    const missing = Object(cause).code === "ERR_MODULE_NOT_FOUND";
    const message = missing
      ? "The engine aiSdk needs the npm package `ai`, version 7. Run `npm install ai`."
      : `The npm package \`ai\` could not be loaded: ${messageOf(cause)}`;
    throw new KhalaError("unavailable", message, {}, { cause });
  }
}
