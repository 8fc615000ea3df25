// A server with all planes, for upgrade tests: also run from the release's own copy of this file. Ends like programs/gateway.ts.
import {
  agent,
  createKhala,
  lightningControlPlane,
  notifications,
  readConfig,
  runSummaries,
  workerSummaries,
} from "@khala/server";
import { scripted } from "@khala/server/engines";

// An exit while a server starts was seen to hang; this cannot.
process.stdin.resume().once("close", () => process.kill(process.pid, "SIGKILL"));
const engine = scripted({
  tokenMs: 20,
  *script({ message }) {
    const last = Number(/\d+/.exec(message));
    for (let i = 1; i <= last; i++) yield { text_delta: { text: `${i} ` } };
  },
});
const agents = [
  agent("reviewer", {
    consumes: "Draft",
    run: ({ artifact }) => ({ type: "Review", payload: { of: artifact.id } }),
  }),
  // A worker over HTTP does its work.
  agent("editor", { consumes: "Review" }),
];
const models = [runSummaries, workerSummaries, lightningControlPlane, notifications];
const khala = await createKhala({ models, engine, agents }, { config: readConfig() });
console.log(`listening on ${khala.url}`);
process.once("SIGTERM", () => khala.stop().then(() => process.exit(0)));
