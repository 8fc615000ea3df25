import { once } from "node:events";
import { createServer } from "node:http";
import { createAdapter } from "@socket.io/redis-streams-adapter";
import { Redis } from "ioredis";
import { Server } from "socket.io";
import { serve } from "../../kit/program.ts";
import { convId } from "../bench.ts";

const methods = {
  /** Socket.IO as its performance page and the adapter's README advise; every socket is in the conversation's room. */
  async open({ redis }: { redis: string }): Promise<{ port: number }> {
    const http = createServer().listen(0, "127.0.0.1");
    await once(http, "listening");
    const client = new Redis(redis, { protocol: 2 });
    const io = new Server(http, {
      transports: ["websocket"],
      serveClient: false,
      httpCompression: false,
      adapter: createAdapter(client, { onlyPlaintext: true }),
    });
    io.engine.on("connection", (raw) => {
      raw.request = null;
    });
    io.on("connection", (socket) => void socket.join(convId(0)));
    return { port: (http.address() as { port: number }).port };
  },
};

/** What this program can be asked. */
export type SocketioServer = typeof methods;

serve(methods);
