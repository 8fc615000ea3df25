import { once } from "node:events";
import { WebSocketServer } from "ws";
import { serve } from "../../kit/program.ts";
import { onEachByte } from "./control.ts";

let frames: Buffer[] = [];
let next = 0;

const methods = {
  /** Nothing but `ws`: each broadcast sends the next ready-made frame to every socket. */
  async open(): Promise<{ port: number; control: number }> {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
    await once(server, "listening");
    const control = await onEachByte(() => {
      const frame = frames[next++ % frames.length]!;
      for (const client of server.clients) client.send(frame, { binary: false });
    });
    return { port: (server.address() as { port: number }).port, control: control.port };
  },

  async frames({ ready }: { ready: Uint8Array[] }): Promise<void> {
    frames = ready.map((bytes) => Buffer.from(bytes));
    next = 0;
  },
};

/** What this program can be asked. */
export type WsServer = typeof methods;

serve(methods);
