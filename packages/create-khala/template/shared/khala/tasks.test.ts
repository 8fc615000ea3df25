import { test } from "node:test";
import { testModel } from "@khala/testing";
import { tasks } from "./tasks.ts";

const added = testModel(tasks).given({ type: "task.added", data: { title: "Write a test" } });

test("adds, completes and deletes a task", async () => {
  await added.expect({ title: "Write a test", done: false });
  await added
    .given({ type: "task.done", data: { done: true } })
    .expect({ title: "Write a test", done: true });
  await added.given({ type: "task.deleted" }).expect(null);
});
