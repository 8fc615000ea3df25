import { z } from "zod";

/** What can happen to a task. */
export const taskEvents = {
  "task.added": z.object({ title: z.string().min(1) }),
  "task.done": z.object({ done: z.boolean() }),
  "task.deleted": z.object({}),
};

/** What is published on the blackboard, by type. */
export const artifacts = {
  Goal: z.object({ text: z.string().min(1) }),
  Plan: z.object({ goal: z.string(), steps: z.array(z.string()) }),
};
