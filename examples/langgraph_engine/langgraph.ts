import type { EngineEvent, EngineFactory, Turn } from "@khala/server/engines";
import {
  AIMessage,
  AIMessageChunk,
  type BaseMessage,
  HumanMessage,
  SystemMessage,
  ToolMessage,
} from "@langchain/core/messages";

type Message = Turn["history"][number];

/** A compiled graph whose state has `messages`, such as one of `MessagesAnnotation`. */
export interface MessagesGraph {
  stream(
    input: { messages: BaseMessage[] },
    options: { streamMode: ["messages", "updates"]; signal: AbortSignal },
  ): Promise<AsyncIterable<unknown>>;
}

/**
 * An engine that runs a LangGraph graph. It keeps no checkpoints: the messages of the conversation are the state, so a run that
 * is resumed begins again at START, with its completed tool calls and their results among the messages.
 */
export function langGraph(graph: MessagesGraph): EngineFactory {
  return () => ({
    resumable: true,
    async *run({ history, parts, resume }, signal) {
      const asked: Message = { role: "user", parts: [...parts] };
      const messages = [...history, asked, ...(resume?.messages ?? [])].flatMap(graphMessages);
      const stream = await graph.stream({ messages }, { streamMode: ["messages", "updates"], signal });
      for await (const item of stream as AsyncIterable<["messages" | "updates", unknown]>) {
        const [mode, chunk] = item;
        if (mode === "messages") yield* deltas(chunk as [BaseMessage, unknown]);
        else yield* calls(chunk as Record<string, { messages?: BaseMessage[] } | null>);
      }
    },
  });
}

/** The text of a model, piece by piece. */
function* deltas([message]: [BaseMessage, unknown]): Iterable<EngineEvent> {
  if (AIMessageChunk.isInstance(message) && message.text !== "") yield { text_delta: { text: message.text } };
}

/** The tool calls and results of a step. */
function* calls(update: Record<string, { messages?: BaseMessage[] } | null>): Iterable<EngineEvent> {
  for (const message of Object.values(update).flatMap((step) => step?.messages ?? [])) {
    if (AIMessage.isInstance(message))
      for (const { id = "", name, args } of message.tool_calls ?? [])
        yield { tool_call: { tool_call_id: id, tool: name, input: args } };
    if (ToolMessage.isInstance(message)) {
      const call = { tool_call_id: message.tool_call_id, tool: message.name ?? "" };
      // What a tool throws may hold secrets: end users see a sentence instead.
      const result = message.status === "error" ? { error: "The tool failed." } : { output: message.text };
      yield { tool_result: { ...call, ...result } };
    }
  }
}

/** A message of the conversation as messages of LangChain: each tool call is followed by its result. */
function graphMessages({ role = "assistant", parts = [] }: Message): BaseMessage[] {
  const content = parts.map(({ text = "" }) => text).join("");
  if (role === "user") return [new HumanMessage(content)];
  if (role === "system") return [new SystemMessage(content)];
  return parts.flatMap(({ text, tool }) => {
    if (text) return [new AIMessage(text)];
    if (!tool) return [];
    const { tool_call_id: id = "", tool: name = "", input, output, error } = tool;
    const result = error ?? (output === undefined ? "The call was interrupted." : toText(output));
    return [
      new AIMessage({ content: "", tool_calls: [{ id, name, args: Object(input) }] }),
      new ToolMessage({ tool_call_id: id, name, content: result }),
    ];
  });
}

function toText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
