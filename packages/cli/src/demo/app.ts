import {
  defineApp,
  lightningControlPlane,
  notifications,
  runSummaries,
  workerSummaries,
} from "@khala/server";
import { demoAgents } from "./agents.ts";
import { demoAssistant } from "./assistant.ts";

/** What is served when no app is named: every model that comes with Khala, an engine that needs no key, and a few agents. */
export default defineApp({
  models: [runSummaries, workerSummaries, notifications, lightningControlPlane],
  engine: demoAssistant,
  agents: demoAgents,
});
