import { WebSocket } from "ws";
import type { Tokens } from "./tokens.ts";
import type { Values } from "./values.ts";

export interface FuzzedChannel {
  readonly topic: string;
  readonly events: readonly string[];
}

const FRAMES = 40;

/** Opens one socket and sends random frames; resolves with how many were sent, once the socket is closed. */
export async function fuzzSocket(
  url: string,
  channels: readonly FuzzedChannel[],
  values: Values,
  tokens: Tokens,
): Promise<number> {
  const token = values.chance(0.1) ? tokens.bad() : tokens.good();
  const kind = values.pick(["phoenix", "phoenix", "conversation", "ai"] as const);
  const path = {
    phoenix: `/socket/websocket?vsn=2.0.0&token=${token}`,
    conversation: `/ws?conv_id=${encodeURIComponent(values.chance(0.8) ? "c1" : values.text().toWellFormed())}&token=${token}`,
    ai: `/ai/ws?token=${token}`,
  }[kind];
  const socket = new WebSocket(url.replace("http", "ws") + path);
  socket.on("error", () => {});
  socket.on("message", (data) => values.remember(data.toString()));
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  const opened = new Promise<boolean>((resolve) => {
    socket.once("open", () => resolve(true));
    socket.once("close", () => resolve(false));
  });
  if (!(await opened)) return 1;
  const count = 1 + values.below(FRAMES);
  for (let i = 0; i < count && socket.readyState === WebSocket.OPEN; i++) {
    const frame = values.below(20);
    if (frame === 0) socket.ping(values.bytes(100));
    else if (frame === 1) socket.pong(values.bytes(100));
    else if (frame < 4) socket.send(values.bytes(500));
    else if (kind === "phoenix") socket.send(phoenixFrame(channels, values, tokens));
    else socket.send(plainFrame(kind, values, tokens));
    if (values.chance(0.2)) await new Promise(setImmediate);
  }
  if (values.chance(0.3)) socket.terminate();
  else socket.close();
  await closed;
  return count;
}

function phoenixFrame(channels: readonly FuzzedChannel[], values: Values, tokens: Tokens): string {
  const channel = values.pick(channels);
  const topic = channel.topic.endsWith(":") ? `${channel.topic}c1` : channel.topic;
  const event = values.chance(0.3)
    ? "phx_join"
    : values.pick([...channel.events, "auth", "phx_leave", "heartbeat"]);
  const payload = {
    auth: { token: tokens.good() },
    subscribe: {
      topics: ["runtime.run_summaries"],
      resume_after: {
        "runtime.run_summaries": { epoch: values.text(), watermark: String(values.below(1e6)) },
      },
    },
    chat: { message: "Hello", policy: "queue" },
    phx_join: { after: values.text() },
  }[event];
  const frame = ["1", String(values.below(100)), topic, event, values.mutated(payload ?? {})];
  return values.damaged(JSON.stringify(values.chance(0.8) ? frame : values.mutated(frame)));
}

function plainFrame(kind: string, values: Values, tokens: Tokens): string {
  const frame =
    kind === "conversation"
      ? { type: values.pick(["ping", "auth"]), token: tokens.good() }
      : {
          type: values.pick(["send", "resume", "abort"]),
          requestId: `r${values.below(5)}`,
          id: "c1",
          messages: [{ id: values.text(), role: "user", parts: [{ type: "text", text: "Hello" }] }],
        };
  return values.damaged(JSON.stringify(values.mutated(frame)) ?? "");
}
