import { defineModel, defineStream, tombstone } from "@khala/server";
import { z } from "zod";

/** Where events come in: `POST /tasks/v1/tasks/:id/events`, for tokens with the scope `tasks:write`. */
export const tasks = defineStream({
  kind: "task",
  path: "/tasks/v1/tasks",
  scope: "tasks:write",
  events: {
    // Without an assignee, everybody in the org sees it.
    "task.added": z.object({ title: z.string().min(1), assignee: z.string().optional() }),
    "task.renamed": z.object({ title: z.string().min(1) }),
    "task.done": z.object({}),
  },
});

/** What a screen shows of a task. */
export interface OpenTask {
  readonly id: string;
  readonly title: string;
  readonly assignee?: string | undefined;
  readonly added_by: string;
  readonly added_at: string;
}

/** `tasks.open_tasks`: one document per task that is not done, `task:<id>`. */
export const openTasks = defineModel({
  topic: "tasks.open_tasks",
  prefix: "task",
  streams: [tasks],
  audience: (task: OpenTask) => (task.assignee ? [task.assignee, task.added_by] : null),
  project(before: OpenTask | null, event) {
    switch (event.type) {
      case "task.added":
        return { id: event.streamId, ...event.data, added_by: event.actor, added_at: event.at };
      case "task.renamed":
        return before && { ...before, title: event.data.title };
      case "task.done":
        return tombstone;
      default:
        return before;
    }
  },
});
