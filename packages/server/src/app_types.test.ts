import { type } from "arktype";
import * as v from "valibot";
import { expectTypeOf, test } from "vitest";
import { z } from "zod";
import { type App, defineApp } from "./app.ts";
import { agent } from "./blackboard/model/define_agent.ts";
import { defineStream } from "./events/stream.ts";
import { runs } from "./events/streams.ts";
import { type AnnotateTheDocumentOrPutProjectFirst, defineModel, tombstone } from "./sync/model.ts";

interface Task {
  readonly title: string;
}

const tasks = defineStream({
  kind: "task",
  path: "/tasks/v1/tasks",
  scope: "tasks:write",
  events: {
    "task.added": z.object({ title: z.string(), stars: z.number().default(0) }),
    "task.renamed": v.object({ title: v.string() }),
    "task.moved": type({ "to?": "string" }),
  },
});

test("event.data has the type of its schema: zod, valibot, arktype, protobuf", () => {
  defineModel({
    topic: "app.tasks",
    prefix: "task",
    streams: [tasks, runs],
    project(before: Task | null, event) {
      switch (event.type) {
        case "task.added":
          expectTypeOf(event.data).toEqualTypeOf<{ title: string; stars: number }>();
          expectTypeOf(event.kind).toEqualTypeOf<"task">();
          return { title: event.data.title };
        case "task.renamed":
          expectTypeOf(event.data).toEqualTypeOf<{ title: string }>();
          return before;
        case "task.moved":
          expectTypeOf(event.data.to).toEqualTypeOf<string | undefined>();
          return before;
        case "run.started":
          expectTypeOf(event.data.title).toEqualTypeOf<string | undefined>();
          return before;
        case "run.deleted":
          return tombstone;
        // @ts-expect-error: no stream has such an event.
        case "task.exploded":
          return before;
        default:
          return before;
      }
    },
  });
});

test("project returns the literals of its document's unions, without a cast", () => {
  interface Ticket {
    readonly status: "open" | "closed";
    readonly note?: string | undefined;
    readonly labels: readonly { readonly colour: "red" | "blue" }[];
  }
  const model = defineModel({
    topic: "app.tickets",
    prefix: "ticket",
    orderBy: ["-status"],
    by: ["status"],
    streams: [tasks],
    project(before: Ticket | null, event) {
      if (event.type === "task.moved") return before && { ...before, status: "closed" };
      return event.type === "task.added"
        ? { status: "open", note: event.data.title, labels: [{ colour: "red" }] }
        : tombstone;
    },
  });
  expectTypeOf(model.audience).parameter(0).toEqualTypeOf<Ticket>();
  const short = defineModel({
    topic: "app.short",
    prefix: "short",
    streams: [tasks],
    project: (before: Ticket | null, event) =>
      event.type === "task.added" ? before && { ...before, status: "open" } : before,
  });
  expectTypeOf(short.audience).parameter(0).toEqualTypeOf<Ticket>();
  defineModel({
    topic: "app.misspelt",
    prefix: "misspelt",
    streams: [tasks],
    // @ts-expect-error: a ticket is open or closed.
    project: (_before: Ticket | null, _event) => ({ status: "opened", labels: [] }),
  });
});

test("a model that declares fields reads its document from project, and refuses other fields", () => {
  const ordered = defineModel({
    topic: "app.ordered",
    prefix: "ordered",
    orderBy: ["-title"],
    filter: ["title"],
    by: ["title"],
    streams: [tasks],
    project(before: Task | null, event) {
      return event.type === "task.added" ? { title: event.data.title } : before;
    },
    expiresAt: (task) => task.title,
  });
  expectTypeOf(ordered.audience).parameter(0).toEqualTypeOf<Task>();
  const definition = { topic: "app.wrong", prefix: "wrong", streams: [tasks] } as const;
  // @ts-expect-error: these are no fields of the document.
  defineModel({ ...definition, orderBy: ["-name"], project: (before: Task | null) => before });
  // @ts-expect-error: nor is this one.
  defineModel({ ...definition, by: ["name"], project: (before: Task | null, _event) => before });
});

test("a document that is used before project says so names the remedy in its type", () => {
  const definition = { topic: "app.early", prefix: "early", streams: [tasks] } as const;
  defineModel({
    ...definition,
    audience: (task: Task) => [task.title],
    orderBy: ["-title"],
    project: (before: Task | null, _event) => before,
  });
  defineModel({
    ...definition,
    audience(task) {
      expectTypeOf(task).toEqualTypeOf<AnnotateTheDocumentOrPutProjectFirst>();
      return null;
    },
    // @ts-expect-error: TypeScript reads an object from its top, and has no type of the document yet.
    project: (before: Task | null, _event) => before,
  });
});

test("authorize gets the data of each event, and a stream of other fields is refused", () => {
  const shared = defineStream({
    ...tasks,
    authorize(_caller, _stream, event) {
      if (event.type === "task.added")
        expectTypeOf(event.data).toEqualTypeOf<{ title: string; stars: number }>();
      // @ts-expect-error: the stream has no such event.
      return event.type !== "task.exploded";
    },
  });
  expectTypeOf(shared.path).toEqualTypeOf<"/tasks/v1/tasks">();
  expectTypeOf(shared.kind).toEqualTypeOf<"task">();
  const elsewhere = defineStream({ ...shared, path: "/elsewhere/v1/tasks" });
  expectTypeOf(elsewhere.path).toEqualTypeOf<"/elsewhere/v1/tasks">();
  // @ts-expect-error: the field is called `authorize`.
  defineStream({ ...tasks, authorise: () => true });
});

test("a stream without known events has JSON data", () => {
  defineModel<Task>({
    topic: "app.any",
    prefix: "any",
    streams: [runs],
    project(before, event) {
      expectTypeOf(event.type).toEqualTypeOf<string>();
      return before;
    },
  });
});

test("payloads of artifacts have the types of the agent's schemas", () => {
  const schemas = {
    Note: z.object({ text: z.string() }),
    Summary: z.object({ words: z.number(), lang: z.string().default("en") }),
  };
  agent("summariser", {
    schemas,
    consumes: "Note",
    where: ({ payload }) => payload.text !== "",
    run({ artifact }) {
      expectTypeOf(artifact.payload).toEqualTypeOf<{ text: string }>();
      return { type: "Summary", payload: { words: artifact.payload.text.length } };
    },
  });
  agent("wrong", {
    schemas,
    consumes: ["Note", "Summary"],
    // @ts-expect-error: the words of a Summary are a number.
    run({ artifact }) {
      if (artifact.type === "Summary") expectTypeOf(artifact.payload.words).toEqualTypeOf<number>();
      return { type: "Summary", payload: { words: "three" } };
    },
  });
  agent("free", {
    consumes: "Anything",
    run: ({ artifact }) => ({ type: "Else", payload: artifact.payload }),
  });
});

test("the events of an append have the types of the streams' schemas, by path", () => {
  const model = defineModel({
    topic: "app.tasks",
    prefix: "task",
    streams: [tasks],
    project: (before: Task | null) => before,
  });
  const app = defineApp({ models: [model] });
  type Appends = NonNullable<(typeof app)["appends"]>;
  expectTypeOf<keyof Appends>().toEqualTypeOf<
    "/tasks/v1/tasks" | "/runtime/v1/runs" | "/runtime/v1/workers"
  >();
  type TaskEvent = Appends["/tasks/v1/tasks"];
  // `stars` has a default, so it need not be sent.
  expectTypeOf<Extract<TaskEvent, { type: "task.added" }>["data"]>().toEqualTypeOf<{
    title: string;
    stars?: number | undefined;
  }>();
  expectTypeOf<Appends["/runtime/v1/runs"]["type"]>().toEqualTypeOf<
    "run.started" | "run.step" | "run.completed" | "run.failed" | "run.stopped" | "run.shared" | "run.deleted"
  >();
  expectTypeOf(app).toExtend<App>();
});
