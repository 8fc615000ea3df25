import {
  agent,
  defineApp,
  defineModel,
  defineStream,
  lightningControlPlane,
  runSummaries,
} from "@khala/server";
import { scripted } from "@khala/server/engines";
import { expect, test } from "vitest";
import { sectionsOf } from "./banner.ts";

const URL = "http://127.0.0.1:4000";
const nothing = agent("nothing", { consumes: "Note", run: () => undefined });

function titles(app: Parameters<typeof defineApp>[0]): string[] {
  const sections = sectionsOf(URL, defineApp(app));
  for (const line of sections.flatMap(({ lines }) => lines)) expect(line).not.toContain("undefined");
  return sections.map(({ title }) => title.split(",")[0]!);
}

test("shows commands for the app: a section for each plane that it uses", () => {
  expect(titles({})).toEqual([]);
  expect(titles({ engine: scripted() })).toEqual(["Send a message to the engine"]);
  expect(titles({ agents: [nothing] })).toEqual(["Publish an artifact"]);
  expect(titles({ models: [runSummaries] })).toEqual(["Append an event"]);
});

test("shows an append of one of the app's own events", () => {
  const [section] = sectionsOf(URL, defineApp({ models: [lightningControlPlane] }));
  expect(section!.lines[0]).toContain(`${URL}/lightning/v1/invoices/hello/events`);
});

test("prints no request that the server would refuse, for a schema that does not say what fits", () => {
  type Task = { readonly title: string };
  const schema = {
    "~standard": {
      version: 1 as const,
      vendor: "own",
      validate: (value: unknown) => ({ value: value as Task }),
      types: undefined as undefined | { readonly input: Task; readonly output: Task },
    },
  };
  const stream = defineStream({
    kind: "task",
    path: "/app/v1/tasks",
    scope: "tasks:write",
    events: { "task.added": schema },
  });
  const tasks = defineModel({
    topic: "app.tasks",
    prefix: "task",
    streams: [stream],
    project: (before: Task | null, event) => ({ ...before, title: event.data.title }),
  });
  const worker = agent("worker", { schemas: { Job: schema }, consumes: "Job", run: () => undefined });
  const sections = sectionsOf(URL, defineApp({ models: [tasks], agents: [worker] }));
  expect(sections.map(({ title }) => title)).toEqual(["Read the documents of a topic, and follow it live:"]);
  expect(sections[0]!.lines[0]).toContain("/sync/v1/list/app.tasks");
});
