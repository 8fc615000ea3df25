// A gateway with every built-in model, set by its environment. Prints its address, stops on SIGTERM, ends with its input.
import {
  createKhala,
  lightningControlPlane,
  notifications,
  readConfig,
  runSummaries,
  workerSummaries,
} from "@khala/server";

process.stdin.resume().once("close", () => process.exit(1));
const models = [runSummaries, workerSummaries, lightningControlPlane, notifications];
const khala = await createKhala({ models }, { config: readConfig() });
console.log(`listening on ${khala.url}`);
process.once("SIGTERM", () => khala.stop().then(() => process.exit(0)));
