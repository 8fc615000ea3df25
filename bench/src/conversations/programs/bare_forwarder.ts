import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { topicForConv } from "@khala/contracts";
import { Redis } from "ioredis";
import { type WebSocket, WebSocketServer } from "ws";
import { serve } from "../../kit/program.ts";
import { convId } from "../bench.ts";

const CHUNK = 500;

let redis: Redis | undefined;
const sockets = new Map<string, WebSocket>();

const methods = {
  /** Subscribes to all conversations on one connection, and sends what comes to the socket that was opened at `/<conv_id>`. */
  async open({ url, conversations }: { url: string; conversations: number }): Promise<{ port: number }> {
    redis = new Redis(url, { protocol: 2 });
    redis.on("message", (channel, payload) => sockets.get(channel)?.send(payload));
    const channels = Array.from({ length: conversations }, (_, n) => topicForConv(convId(n)));
    for (let i = 0; i < channels.length; i += CHUNK) await redis.subscribe(...channels.slice(i, i + CHUNK));
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
    server.on("connection", (socket, { url: path }) => sockets.set(topicForConv(path!.slice(1)), socket));
    await once(server, "listening");
    return { port: (server.address() as AddressInfo).port };
  },
};

/** What this program can be asked. */
export type BareForwarder = typeof methods;

serve(methods, () => redis?.disconnect());
