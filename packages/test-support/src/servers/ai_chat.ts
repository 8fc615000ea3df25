import { randomUUID } from "node:crypto";
import type { EventJson } from "@khala/contracts/conversation/v1";
import type { ChatInit, UIMessage } from "ai";
import { until } from "../kit/until.ts";
import type { ConversationServer } from "./conversations.ts";
import type { ManualTurn } from "./manual_engine.ts";

const { Chat } = await import("@ai-sdk/react");
const { DefaultChatTransport, WebSocketChatTransport } = await import("ai");

/** An AI SDK chat, as an app has it. */
export type AiChat = InstanceType<typeof Chat>;

/** The two transports that the AI SDK has for servers. */
export const TRANSPORTS = ["http", "websocket"] as const;
export type TransportName = (typeof TRANSPORTS)[number];

export interface ChatOptions {
  readonly token?: string;
  readonly policy?: string;
  /** Options of the HTTP transport. */
  readonly fetch?: typeof globalThis.fetch;
  readonly messages?: UIMessage[];
  readonly onData?: (part: { type: string; data: unknown }) => void;
  /** The app's tool handlers, and when their answers are sent. */
  readonly tools?: Pick<ChatInit<UIMessage>, "onToolCall" | "sendAutomaticallyWhen">;
}

/** The AI SDK's transport, pointed at the server. */
export function openTransport(
  server: ConversationServer,
  name: TransportName,
  { token, policy, fetch }: Pick<ChatOptions, "token" | "policy" | "fetch"> = {},
) {
  const bearer = async () => token ?? (await server.token());
  const params = policy ? { policy } : {};
  if (name === "http") {
    const query = new URLSearchParams(params).toString();
    return new DefaultChatTransport({
      api: `${server.url}/ai/chat${query && `?${query}`}`,
      headers: async () => ({ authorization: `Bearer ${await bearer()}` }),
      ...(fetch && { fetch }),
    });
  }
  return new WebSocketChatTransport({
    url: `${server.url}/ai/ws`,
    params: async () => ({ token: await bearer(), ...params }),
  });
}

/** Opens a chat: a tab, or a device. */
export function openChat(
  server: ConversationServer,
  name: TransportName,
  id: string,
  { messages = [], onData, tools, ...rest }: ChatOptions = {},
): AiChat & AsyncDisposable {
  const transport = openTransport(server, name, rest);
  const chat = new Chat({ id, messages, transport, ...(onData && { onData }), ...tools });
  return Object.assign(chat, {
    [Symbol.asyncDispose]: async () => {
      // Not `dispose`, which would stop the run.
      if ("close" in transport) transport.close();
    },
  });
}

/** A unique conversation id. */
export function newConv(): string {
  return `conv-${randomUUID()}`;
}

/** The text of a message. */
export function textOf(message: UIMessage | undefined): string {
  return (message?.parts ?? []).map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** Waits until the last message has this text. */
export function says(chat: AiChat, text: string) {
  return until(`the text ${JSON.stringify(text.slice(0, 40))}`, () => {
    const last = chat.messages.at(-1);
    return last?.role === "assistant" && textOf(last) === text;
  });
}

/** Waits until the chat is idle. */
export function settled(chat: AiChat) {
  return until("the end of the answer", () => chat.status === "ready" || chat.status === "error");
}

/** The turn being answered in a conversation, once `turns` have begun. */
export async function onStage(server: ConversationServer, convId: string, turns = 1): Promise<ManualTurn> {
  await until("the turn", () => server.engine.turnCount(convId) >= turns);
  const { run } = await server.state(convId);
  return server.engine.turn(run!.run_id!);
}

/** An answer with every kind of event an engine may send. */
export const EVERYTHING: readonly Omit<EventJson, "run_started" | "run_failed" | "run_stopped">[] = [
  { status: { text: "Looking outside" } },
  { reasoning_delta: { text: "Let me see." } },
  { text_delta: { text: "I look." } },
  { tool_call: { tool_call_id: "c1", tool: "weather", input: { city: "Bern" } } },
  { tool_call: { tool_call_id: "c2", tool: "weather", input: { city: "Nowhere" } } },
  { tool_result: { tool_call_id: "c1", tool: "weather", output: { celsius: 7 } } },
  { tool_result: { tool_call_id: "c2", tool: "weather", error: "There is no such place." } },
  { custom: { name: "weather_result", data: { celsius: 7 } } },
  { text_delta: { text: "It is cold." } },
];
