// A gateway whose engine records a tool call in a file, then counts to the number in the message. Ends like programs/gateway.ts.
import { appendFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { createKhala, readConfig } from "@khala/server";
import type { EngineFactory } from "@khala/server/engines";

// An exit while a server starts was seen to hang; this cannot.
process.stdin.resume().once("close", () => process.kill(process.pid, "SIGKILL"));

const engine: EngineFactory = () => ({
  resumable: true,
  async *run({ convId, message, resume }, signal) {
    const call = { tool_call_id: `${convId}-look`, tool: "look" };
    if (!resume?.messages.some(({ parts = [] }) => parts.some(({ tool }) => tool?.output))) {
      yield { tool_call: { ...call, input: {} } };
      await appendFile(process.env.TOOL_FILE!, `${convId}\n`);
      yield { tool_result: { ...call, output: { seen: true } } };
    }
    const last = Number(/\d+/.exec(message));
    for (let i = 1; i <= last && !signal.aborted; i++) {
      yield { text_delta: { text: `${i} ` } };
      await delay(20, undefined, { signal }).catch(() => {});
    }
  },
});
const khala = await createKhala({ models: [], engine }, { config: readConfig() });
console.log(`listening on ${khala.url}`);
process.once("SIGTERM", () => khala.stop().then(() => process.exit(0)));
