import { createClient, type Item } from "@khala/client";
import { createSyncClient } from "@khala/client/sync";
import type { CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import type { RunSummaryJson } from "@khala/contracts/runtime/v1";
import { defineApp, defineModel, runSummaries } from "@khala/server";
import { expectTypeOf, test } from "vitest";

interface Task {
  readonly title: string;
  readonly done: boolean;
}

const tasks = defineModel({
  topic: "app.tasks",
  prefix: "task",
  streams: [],
  project: (before: Task | null) => before,
});
const untyped = defineModel<Task>({
  topic: "app.untyped",
  prefix: "untyped",
  streams: [],
  project: (t) => t,
});
const app = defineApp({ models: [runSummaries, tasks, untyped] });

const options = { url: "http://khala.test", token: "t" };

test("documents have the types of the models that make them", () => {
  const khala = createClient<typeof app>(options);
  expectTypeOf(khala.sync.get("app.tasks", "task:1").data).toEqualTypeOf<Task | undefined>();
  expectTypeOf(khala.sync.get("runtime.run_summaries", "run:1").data).toEqualTypeOf<
    RunSummaryJson | undefined
  >();
  expectTypeOf(khala.sync.list("app.tasks").items).toEqualTypeOf<readonly Item<Task>[]>();
  const small = createSyncClient<typeof app>(options);
  expectTypeOf(small.sync.list("app.tasks").items).toEqualTypeOf<readonly Item<Task>[]>();
});

test("the board's topics are known without an app, other topics are unknown", () => {
  const khala = createClient(options);
  expectTypeOf(khala.sync.get("blackboard.correlations", "c").data).toEqualTypeOf<
    CorrelationStateJson | undefined
  >();
  expectTypeOf(khala.sync.get("app.tasks", "task:1").data).toEqualTypeOf<unknown>();
  expectTypeOf(createClient<typeof app>(options).sync.get("app.untyped", "x").data).toEqualTypeOf<unknown>();
});
