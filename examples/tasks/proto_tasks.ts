import { defineStream } from "@khala/server";
import { TaskAddedSchema, TaskDoneSchema, TaskRenamedSchema } from "./gen/tasks_pb.ts";

/** The same stream, described by tasks.proto. */
export const protoTasks = defineStream({
  kind: "task",
  path: "/tasks/v1/tasks",
  scope: "tasks:write",
  events: {
    "task.added": TaskAddedSchema,
    "task.renamed": TaskRenamedSchema,
    "task.done": TaskDoneSchema,
  },
});
