import type { Server as HttpServer } from "node:http";
import type { Redis } from "ioredis";
import { importPeer } from "../../peers/import_peer.ts";

// What is used of socket.io and its adapter for Redis streams.
interface SocketioServer {
  readonly engine: { on(event: "connection", listener: (raw: { request: unknown }) => void): void };
  on(event: "connection", listener: (socket: { join(room: string): void }) => void): void;
  to(room: string): Pick<SocketioServer, "emit">;
  emit(event: string, message: unknown): void;
}
interface Socketio {
  readonly Server: new (...given: (HttpServer | object)[]) => SocketioServer;
}
interface RedisStreams {
  createAdapter(client: Redis, options: { onlyPlaintext: true }): object;
}

/** A server as the performance page of Socket.IO advises: WebSocket alone, no compression, no request kept. */
export async function openSocketio(http: HttpServer, adapter?: object): Promise<SocketioServer> {
  const { Server } = await importPeer<Socketio>("socket.io");
  const options = { transports: ["websocket"], serveClient: false, httpCompression: false };
  const io = new Server(http, { ...options, ...(adapter && { adapter }) });
  io.engine.on("connection", (raw) => {
    raw.request = null;
  });
  return io;
}

/** Another server of the same cluster, which has no sockets of its own. */
export async function openSocketioPublisher(adapter: object): Promise<SocketioServer> {
  const { Server } = await importPeer<Socketio>("socket.io");
  return new Server({ adapter });
}

/** The adapter by which servers of a cluster share rooms, as its README advises. */
export async function redisStreamsAdapter(client: Redis): Promise<object> {
  const { createAdapter } = await importPeer<RedisStreams>("@socket.io/redis-streams-adapter");
  return createAdapter(client, { onlyPlaintext: true });
}
