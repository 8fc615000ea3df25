import {
  defineApp,
  lightningControlPlane,
  notifications,
  runSummaries,
  workerSummaries,
} from "@khala/server";

/** What is served when no app is named: every model that comes with Khala. */
export default defineApp({ models: [runSummaries, workerSummaries, notifications, lightningControlPlane] });
