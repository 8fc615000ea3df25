import { once } from "node:events";
import { createServer } from "node:http";
import { Redis } from "ioredis";
import { serve } from "../../kit/program.ts";
import { openSocketio, redisStreamsAdapter } from "../../kit/socketio.ts";
import { convId } from "../bench.ts";

const methods = {
  /** Every socket is in the conversation's room. */
  async open({ redis }: { redis: string }): Promise<{ port: number }> {
    const http = createServer().listen(0, "127.0.0.1");
    await once(http, "listening");
    const client = new Redis(redis, { protocol: 2 });
    const io = await openSocketio(http, await redisStreamsAdapter(client));
    io.on("connection", (socket) => void socket.join(convId(0)));
    return { port: (http.address() as { port: number }).port };
  },
};

/** What this program can be asked. */
export type SocketioServer = typeof methods;

serve(methods);
