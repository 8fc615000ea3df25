import { createClient, type Item } from "@khala/client";
import { hooksOf } from "@khala/client/react";
import { createSyncClient } from "@khala/client/sync";
import type { CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import type { RunSummaryJson } from "@khala/contracts/runtime/v1";
import { agent, defineApp, defineModel, defineStream, runSummaries } from "@khala/server";
import { defineEngine } from "@khala/server/engines";
import { expect, expectTypeOf, test } from "vitest";
import { z } from "zod";

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

test("documents have the types of their models", () => {
  const khala = createClient<typeof app>(options);
  expectTypeOf(khala.sync.get("app.tasks", "task:1").data).toEqualTypeOf<Task | undefined>();
  expectTypeOf(khala.sync.get("runtime.run_summaries", "run:1").data).toEqualTypeOf<
    RunSummaryJson | undefined
  >();
  expectTypeOf(khala.sync.list("app.tasks").items).toEqualTypeOf<readonly Item<Task>[]>();
  const small = createSyncClient<typeof app>(options);
  expectTypeOf(small.sync.list("app.tasks").items).toEqualTypeOf<readonly Item<Task>[]>();
});

test("lists are ordered and filtered by fields of the document, and a part has its topic's documents", () => {
  const { sync } = createClient<typeof app>(options);
  const list = () =>
    sync.list("app.tasks", { order: "-title", filter: { done: false }, where: { title: "a" } });
  expectTypeOf(list).returns.toHaveProperty("items").toEqualTypeOf<readonly Item<Task>[]>();
  expectTypeOf(sync.list("app.tasks?title=a").items).toEqualTypeOf<readonly Item<Task>[]>();
  // @ts-expect-error the document has no such field.
  void (() => sync.list("app.tasks", { order: "-name" }));
  // @ts-expect-error nor this one.
  void (() => sync.list("app.tasks", { filter: { name: "a" } }));
  type Declared = Parameters<typeof defineModel<Task, "app.declared">>[0];
  expectTypeOf<"-title">().toExtend<NonNullable<Declared["orderBy"]>[number]>();
  expectTypeOf<"name">().not.toExtend<NonNullable<Declared["by"]>[number]>();
});

test("the board's topics are known without an app, other topics are unknown", () => {
  const khala = createClient(options);
  expectTypeOf(khala.sync.get("blackboard.correlations", "c").data).toEqualTypeOf<
    CorrelationStateJson | undefined
  >();
  expectTypeOf(khala.sync.get("app.tasks", "task:1").data).toEqualTypeOf<unknown>();
  expectTypeOf(createClient<typeof app>(options).sync.get("app.untyped", "x").data).toEqualTypeOf<unknown>();
});

const notes = defineStream({
  kind: "note",
  path: "/app/v1/notes",
  scope: "notes:write",
  events: { "note.written": z.object({ text: z.string(), stars: z.number().default(0) }) },
});
const latest = defineModel({
  topic: "app.notes",
  prefix: "note",
  streams: [notes],
  project: (_: { text: string } | null, event) => ({ text: event.data.text }),
});
const schemas = { Note: z.object({ text: z.string() }), Count: z.object({ words: z.number() }) };
const counter = agent("counter", {
  schemas,
  consumes: "Note",
  run: ({ artifact }) => ({ type: "Count", payload: { words: artifact.payload.text.length } }),
});
const typed = defineApp({ models: [latest], agents: [counter], schemas });

test("schemas give the client types for documents and artifacts", () => {
  const khala = createClient<typeof typed>(options);
  expectTypeOf(khala.sync.get("app.notes", "note:1").data).toEqualTypeOf<{ text: string } | undefined>();
  const publish = () => khala.board.publish({ type: "Note", payload: { text: "hi" } });
  expectTypeOf(publish).toBeFunction();
  // @ts-expect-error: a Note has a text.
  const wrong = () => khala.board.publish({ type: "Note", payload: { words: 1 } });
  expectTypeOf(wrong).toBeFunction();
  const append = () =>
    khala.sync.append("/app/v1/notes", "n1", { type: "note.written", data: { text: "hi" } });
  expectTypeOf(append).toBeFunction();
  // @ts-expect-error: the text of a note is a string.
  const bad = () => khala.sync.append("/app/v1/notes", "n1", { type: "note.written", data: { text: 1 } });
  expectTypeOf(bad).toBeFunction();
  // Without an app any artifact may be published, and anything appended.
  expectTypeOf(() => createClient(options).sync.append("/x", "1", { type: "any" })).toBeFunction();
  expectTypeOf(() => createClient(options).board.publish({ type: "Any", payload: 1 })).toBeFunction();
});

test("a message's params have the type that the app's engine takes", () => {
  const engine = defineEngine({
    params: z.object({ tone: z.enum(["calm", "loud"]).default("calm") }),
    async *run({ params }) {
      expectTypeOf(params.tone).toEqualTypeOf<"calm" | "loud">();
      yield { text_delta: { text: params.tone } };
    },
  });
  const typed = defineApp({ engine });
  const khala = createClient<typeof typed>(options);
  type Message = Exclude<Parameters<ReturnType<typeof khala.conversation>["send"]>[0], string>;
  expectTypeOf<Message>()
    .toHaveProperty("params")
    .toEqualTypeOf<{ tone?: "calm" | "loud" | undefined } | undefined>();
  const { useConversation } = hooksOf<typeof typed>();
  type Hook = Exclude<Parameters<ReturnType<typeof useConversation>["send"]>[0], string>;
  expectTypeOf<Hook>().toEqualTypeOf<Message>();
  // @ts-expect-error: there is no such tone.
  const wrong: Message = { text: "hi", params: { tone: "shrill" } };
  const free: Parameters<ReturnType<ReturnType<typeof createClient>["conversation"]>["send"]>[0] = {
    params: { anything: 1 },
  };
  expect([wrong, free]).toHaveLength(2);
});
