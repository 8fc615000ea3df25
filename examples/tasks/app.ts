import { defineApp } from "@khala/server";
import { openTasks } from "./open_tasks.ts";

export default defineApp({ models: [openTasks] });
