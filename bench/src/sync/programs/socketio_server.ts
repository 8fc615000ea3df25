import { once } from "node:events";
import { createServer } from "node:http";
import { serve } from "../../kit/program.ts";
import { openSocketio } from "../../kit/socketio.ts";
import { docKey, KEYS, runSummary } from "../documents.ts";
import { onEachByte } from "./control.ts";

const methods = {
  async open(): Promise<{ port: number; control: number }> {
    const http = createServer().listen(0, "127.0.0.1");
    await once(http, "listening");
    const io = await openSocketio(http);
    let n = 0;
    const control = await onEachByte(() => {
      const key = ++n % KEYS;
      io.emit("update", { doc_key: docKey(key), doc_version: String(n), payload: runSummary(key, n) });
    });
    return { port: (http.address() as { port: number }).port, control: control.port };
  },
};

/** What this program can be asked. */
export type SocketioServer = typeof methods;

serve(methods);
