import {
  defineApp,
  lightningControlPlane,
  notifications,
  runSummaries,
  workerSummaries,
} from "@khala/server";
import { scripted } from "@khala/server/engines";

/** What is served when no app is named: every model that comes with Khala, and an engine that needs no key. */
export default defineApp({
  models: [runSummaries, workerSummaries, notifications, lightningControlPlane],
  engine: scripted(),
});
