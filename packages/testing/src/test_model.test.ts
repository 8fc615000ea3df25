import { defineModel, defineStream, runSummaries, tombstone } from "@khala/server";
import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { testModel } from "./test_model.ts";

const tasks = defineStream({
  kind: "task",
  path: "/app/v1/tasks",
  scope: "tasks:write",
  events: {
    "task.added": z.object({
      title: z.string().min(1),
      stars: z.number().default(0),
      to: z.string().optional(),
    }),
    "task.done": z.object({}),
    "task.deleted": z.object({}),
  },
});

interface Task {
  readonly title: string;
  readonly stars: number;
  readonly done: boolean;
}

const model = defineModel({
  topic: "app.tasks",
  prefix: "task",
  streams: [tasks],
  project(before: Task | null, event) {
    if (event.type === "task.added") return { title: event.data.title, stars: event.data.stars, done: false };
    if (event.type === "task.deleted") return tombstone;
    if (!before) throw new Error("a task is done before it is added");
    return { ...before, done: true };
  },
  audience: (_, event) => (event.type === "task.added" && event.data.to ? [event.data.to] : null),
});

const added = { type: "task.added", data: { title: "Write" } } as const;

describe("testModel", () => {
  test("folds events into the document, with the defaults of their schemas", async () => {
    const tested = testModel(model).given([added]);
    await tested.expect({ title: "Write", stars: 0, done: false });
    await tested.given({ type: "task.done" }).expect({ title: "Write", stars: 0, done: true });
    await tested.given({ type: "task.deleted" }).expect(null);
  });

  test("a wrong document throws an assertion error with both values", async () => {
    const wrong = testModel(model).given([added]).expect({ title: "Read", stars: 0, done: false });
    await expect(wrong).rejects.toMatchObject({
      name: "AssertionError",
      actual: { title: "Write" },
      expected: { title: "Read" },
    });
  });

  test("data refused by the schema, and an error of the model, fail the test", async () => {
    const empty = testModel(model).given([{ type: "task.added", data: { title: "" } }]);
    await expect(empty.expect(null)).rejects.toThrow("events[0].data.title");
    await expect(
      testModel(model)
        .given([{ type: "task.done" }])
        .expect(null),
    ).rejects.toThrow("a task is done before it is added");
  });

  test("each stream has a document, with its version and audience", async () => {
    const tested = testModel(model).given([
      added,
      { type: "task.added", data: { title: "Read", to: "ben" }, id: "2" },
      { type: "task.done", id: "2" },
    ]);
    await tested.expectAt("task:2", { title: "Read", stars: 0, done: true });
    await tested.expectAt("task:3", null);
    await expect(tested.expect(null)).rejects.toThrow("There are 2 documents: task:1, task:2.");
    expect(await tested.documents()).toMatchObject([
      { key: "task:1", version: 1, audience: null },
      { key: "task:2", version: 2, audience: null },
    ]);
  });

  test("checks events of protobuf streams too", async () => {
    const run = testModel(runSummaries).given([{ type: "run.started", data: { title: "Hi" } }]);
    expect(await run.documents()).toMatchObject([{ key: "run:1", data: { title: "Hi", status: "running" } }]);
  });

  test("events and documents have the types of the model", () => {
    const tested = testModel(model);
    expectTypeOf(tested.expect).parameter(0).toEqualTypeOf<Task | null>();
    // @ts-expect-error: a title is a text.
    tested.given([{ type: "task.added", data: { title: 1 } }]);
    // @ts-expect-error: it needs data.
    tested.given([{ type: "task.added" }]);
    // @ts-expect-error: no stream has such an event.
    tested.given([{ type: "task.exploded" }]);
    // @ts-expect-error: runs have no such event.
    testModel(runSummaries).given([{ type: "task.done" }]);
  });
});
