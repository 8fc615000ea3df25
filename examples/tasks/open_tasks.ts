import { defineModel, defineStream, tombstone } from "@khala/server";
import {
  type OpenTaskJson,
  type TaskAddedJson,
  TaskAddedSchema,
  TaskDoneSchema,
  type TaskRenamedJson,
  TaskRenamedSchema,
} from "./gen/tasks_pb.ts";

/** Where events come in: `POST /tasks/v1/tasks/:id/events`, for tokens with the scope `tasks:write`. */
export const tasks = defineStream({
  kind: "task",
  path: "/tasks/v1/tasks",
  scope: "tasks:write",
  events: {
    "task.added": TaskAddedSchema,
    "task.renamed": TaskRenamedSchema,
    "task.done": TaskDoneSchema,
  },
});

/** `tasks.open_tasks`: one document per task that is not done, `task:<id>`. */
export const openTasks = defineModel<OpenTaskJson>({
  topic: "tasks.open_tasks",
  prefix: "task",
  streams: [tasks],
  audience: (task) => (task.assignee ? [task.assignee, task.added_by ?? ""] : null),
  project(before, event) {
    switch (event.type) {
      case "task.added": {
        const { title = "", assignee } = event.data as TaskAddedJson;
        const task = { id: event.streamId, title, added_by: event.actor, added_at: event.at };
        return assignee === undefined ? task : { ...task, assignee };
      }
      case "task.renamed":
        return before && { ...before, title: (event.data as TaskRenamedJson).title ?? "" };
      case "task.done":
        return tombstone;
      default:
        return before;
    }
  },
});
