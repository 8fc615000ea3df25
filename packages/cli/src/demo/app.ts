import {
  defineApp,
  lightningControlPlane,
  notifications,
  runSummaries,
  workerSummaries,
} from "@khala/server";
import { demoAgents } from "./agents.ts";
import { demoAssistant } from "./assistant.ts";

/** The demo app, served without --app: every model that comes with Khala, an engine without a model, and a few agents. */
export default defineApp({
  models: [runSummaries, workerSummaries, notifications, lightningControlPlane],
  engine: demoAssistant,
  agents: demoAgents,
});
