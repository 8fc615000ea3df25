// A gateway whose engine counts slowly to the number in the message. Ends like programs/gateway.ts.
import { createKhala, readConfig } from "@khala/server";
import { scripted } from "@khala/server/engines";

// An exit while a server starts was seen to hang; this cannot.
process.stdin.resume().once("close", () => process.kill(process.pid, "SIGKILL"));
const engine = scripted({
  tokenMs: 60,
  *script({ message }) {
    const last = Number(/\d+/.exec(message));
    for (let i = 1; i <= last; i++) yield { text_delta: { text: `${i} ` } };
  },
});
const khala = await createKhala({ models: [], engine }, { config: readConfig() });
console.log(`listening on ${khala.url}`);
process.once("SIGTERM", () => khala.stop().then(() => process.exit(0)));
