import type { JsonObject } from "@bufbuild/protobuf";
import type { CustomJson } from "@khala/contracts/conversation/v1";
import type { LanguageModel, streamText, TextStreamPart, ToolSet, TypedToolCall } from "ai";
import { type ParamsSchema, withParams } from "../turns/params.ts";
import { modelMessages } from "./ai_sdk_messages.ts";
import type { Engine, EngineEvent, EngineFactory, Turn } from "./engine.ts";
import { finishError, modelError } from "./model_error.ts";

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

/** A value, or a function that makes it for each turn. */
export type OfTurn<Params, Value> = Value | ((turn: Turn<Params>) => Value | Promise<Value>);

type Settings = Omit<StreamTextOptions, EngineOwned | "stopWhen">;

export interface AiSdkOptions<Params = JsonObject> {
  /** The schema of a message's `params`. Its type is that of the turn's `params` in the functions below. */
  readonly params?: ParamsSchema<Params>;
  /** The system prompt. */
  readonly system?: OfTurn<Params, string>;
  /**
   * A function knows the conversation and who asks. A tool's `execute` gets the turn's signal as `abortSignal`. One with
   * `needsApproval` waits for a person, and one without `execute` for the client.
   */
  readonly tools?: OfTurn<Params, ToolSet>;
  /** The most model calls per turn, when tools are used; 10 unless `stopWhen` is set. */
  readonly maxSteps?: number;
  readonly stopWhen?: NonNullable<StreamTextOptions["stopWhen"]>;
  /** Passed on to `streamText`: temperature, maxOutputTokens, providerOptions and so on. */
  readonly settings?: OfTurn<Params, Settings>;
}

/** A model, or a function that picks one for each turn. */
export type ModelChoice<Params = JsonObject> =
  | LanguageModel
  | ((turn: Turn<Params>) => LanguageModel | Promise<LanguageModel>);

/** An engine on the AI SDK. The npm package `ai` is installed by the user. */
export function aiSdk<Params>(model: ModelChoice<Params>, options: WithSchema<Params>): EngineFactory;
export function aiSdk(model: ModelChoice, options?: WithoutSchema): EngineFactory;
export function aiSdk<Params>(
  model: ModelChoice | ModelChoice<Params>,
  options: WithoutSchema | WithSchema<Params> = {},
): EngineFactory {
  // The overloads keep the types of model and options together.
  if (options.params)
    return withParams(options.params, () => engineOn(model as ModelChoice<Params>, options));
  return () => engineOn(model as ModelChoice, options);
}

type WithSchema<Params> = AiSdkOptions<Params> & { readonly params: ParamsSchema<Params> };
type WithoutSchema = AiSdkOptions & { readonly params?: never };

function engineOn<Params>(model: ModelChoice<Params>, options: AiSdkOptions<Params>): Engine<Params> {
  return {
    resumable: true,
    async *run(turn, signal) {
      const ai = await loadAiSdk();
      const { streamText, isStepCount } = ai;
      const { maxSteps = 10, stopWhen = isStepCount(maxSteps) } = options;
      const chosen = typeof model === "function" ? await model(turn) : model;
      const instructions = await resolveOption(options.system, turn);
      const tools = { ...clientTools(ai, turn), ...(await resolveOption(options.tools, turn)) };
      const settings = await resolveOption(options.settings, turn);
      const messages = await modelMessages(turn);
      // Leaving the loop below does not end the request to the provider: this does.
      const ended = new AbortController();
      try {
        const { stream } = streamText({
          // Errors are thrown from the stream below.
          onError() {},
          ...settings,
          model: chosen,
          messages,
          // Only an engine can have written system messages.
          allowSystemInMessages: true,
          abortSignal: AbortSignal.any([signal, ended.signal]),
          stopWhen,
          ...(instructions !== undefined && { instructions }),
          ...(Object.keys(tools).length > 0 && { tools }),
        });
        for await (const part of stream) {
          if (signal.aborted) return;
          const event = engineEvent(part, turn, tools);
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
}

async function resolveOption<Params, Value extends object | string>(
  option: OfTurn<Params, Value> | undefined,
  turn: Turn<Params>,
): Promise<Value | undefined> {
  return typeof option === "function" ? option(turn) : option;
}

/** The client's own tools, as the model sees them. */
function clientTools(
  { tool, jsonSchema }: Awaited<ReturnType<typeof loadAiSdk>>,
  turn: Pick<Turn, "tools">,
): ToolSet {
  const entries = turn.tools.map(({ name = "", description = "", parameters = {} }) => {
    const inputSchema = jsonSchema<JsonObject>({ type: "object", ...parameters });
    return [name, tool({ description, inputSchema })];
  });
  return Object.fromEntries(entries);
}

/** Whether the client executes the call. */
function isForClient(
  { toolName, providerExecuted, invalid }: TypedToolCall<ToolSet>,
  tools: ToolSet,
): boolean {
  const tool = Object.hasOwn(tools, toolName) ? tools[toolName] : undefined;
  return !providerExecuted && !invalid && tool !== undefined && tool.execute === undefined;
}

function engineEvent<Params>(
  part: TextStreamPart<ToolSet>,
  turn: Turn<Params>,
  tools: ToolSet,
): EngineEvent | undefined {
  switch (part.type) {
    case "text-delta":
      return part.text === "" ? undefined : { text_delta: { text: part.text } };
    case "reasoning-delta":
      return part.text === "" ? undefined : { reasoning_delta: { text: part.text } };
    case "tool-call":
      return {
        tool_call: {
          ...callOf(part),
          input: json(part.input),
          ...(isForClient(part, tools) && { waits_for: "output" }),
        },
      };
    case "tool-result":
      return part.preliminary ? undefined : { tool_result: { ...callOf(part), output: json(part.output) } };
    case "tool-error":
      return { tool_result: { ...callOf(part), error: turn.reportError(part.error) } };
    case "tool-output-denied":
      // A denial is already known.
      if (turn.resume) return undefined;
      return { tool_result: { ...callOf(part), error: "The use of this tool was denied." } };
    case "tool-approval-request":
      // A tool executed by the client is also approved there.
      if (part.isAutomatic || isForClient(part.toolCall, tools)) return undefined;
      return { tool_approval_requested: { tool_call_id: part.toolCall.toolCallId } };
    case "source":
      return part.sourceType === "url"
        ? { source_added: { source: { source_id: part.id, url: part.url, title: part.title ?? "" } } }
        : { custom: { name: "source", data: json(part) } };
    case "file":
      return fileEvent(part.file);
    case "reasoning-file":
      return fileEvent(part.file);
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

/** The server stores the bytes, and replaces the URL by that of the file. */
function fileEvent({ mediaType, base64 }: { mediaType: string; base64: string }): EngineEvent {
  return { file_added: { file: { url: `data:${mediaType};base64,${base64}`, media_type: mediaType } } };
}

function finishedEvent({
  finishReason,
  rawFinishReason,
  totalUsage,
}: TextStreamPart<ToolSet> & { type: "finish" }): EngineEvent {
  const failure = finishError(finishReason, rawFinishReason);
  if (failure) throw failure;
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
