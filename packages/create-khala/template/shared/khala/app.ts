import { defineApp } from "@khala/server";
import { engine } from "./engine.ts";
import { planner } from "./planner.ts";
import { artifacts } from "./schemas.ts";
import { tasks } from "./tasks.ts";

/** What the server runs. */
export default defineApp({
  models: [tasks],
  engine,
  agents: [planner],
  schemas: artifacts,
});
