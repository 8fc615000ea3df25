import { defineModel, defineStream, tombstone } from "@khala/server";
import { taskEvents } from "./schemas.ts";

/** The events of a task. `POST /app/v1/tasks/<id>/events` appends one. */
const tasksStream = defineStream({
  kind: "task",
  path: "/app/v1/tasks",
  scope: "tasks:write",
  events: taskEvents,
});

/** What a screen shows of a task. */
export interface Task {
  readonly title: string;
  readonly done: boolean;
}

/** Events become documents, one per task: `task:<id>`. Every client that may see it follows it live. */
export const tasks = defineModel({
  topic: "app.tasks",
  prefix: "task",
  streams: [tasksStream],
  project(task: Task | null, event) {
    switch (event.type) {
      case "task.added":
        return { title: event.data.title, done: false };
      case "task.done":
        return task && { ...task, done: event.data.done };
      case "task.deleted":
        return tombstone;
    }
  },
});
