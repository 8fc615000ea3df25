// A gateway with every built-in model, set by its environment. Says where it listens, and stops on SIGTERM.
import {
  createKhala,
  lightningControlPlane,
  notifications,
  readConfig,
  runSummaries,
  workerSummaries,
} from "@khala/server";

const models = [runSummaries, workerSummaries, lightningControlPlane, notifications];
const khala = await createKhala({ models }, { config: readConfig() });
console.log(`listening on ${khala.url}`);
process.once("SIGTERM", () => khala.stop().then(() => process.exit(0)));
