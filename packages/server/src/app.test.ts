import { expect, test } from "vitest";
import { z } from "zod";
import { defineApp } from "./app.ts";
import { agent } from "./blackboard/model/define_agent.ts";
import { scripted } from "./engines.ts";
import { defineStream } from "./events/stream.ts";
import { defineModel } from "./sync/model.ts";

const nothing = agent("nothing", { consumes: "Note", run: () => undefined });

test("an app may have only an engine, only agents, or nothing", () => {
  expect(defineApp({}).models.all).toEqual([]);
  const engine = scripted();
  expect(defineApp({ engine })).toMatchObject({
    engine,
    agents: [],
    models: { all: [{ topic: "approvals" }] },
  });
  expect(defineApp({ agents: [nothing] }).models.all.map(({ topic }) => topic)).toEqual([
    "blackboard.agents",
    "blackboard.correlations",
    "approvals",
  ]);
});

test.each([
  ["a misspelt field", { model: [] }, 'defineApp has no option "model". Its options: models, engine,'],
  ["one agent in place of a list", { agents: nothing }, "The agents of an app must be a list."],
  [
    "an engine in place of its factory",
    { engine: scripted()({} as never) },
    "must be a function that creates one",
  ],
])("refuses %s, where types do not", (_, definition, message) => {
  expect(() => defineApp(definition as object)).toThrow(message);
});

test("every app accepts events of runs and workers", () => {
  expect(defineApp({}).streams.map(({ kind }) => kind)).toEqual(["run", "worker"]);
});

test("two streams cannot have one path", () => {
  const model = (name: string) => {
    const events = { [`${name}.added`]: z.object({}) };
    const stream = defineStream({ kind: name, path: "/app/v1/things", scope: "things", events });
    return defineModel({ topic: `app.${name}`, prefix: name, streams: [stream], project: () => ({}) });
  };
  expect(() => defineApp({ models: [model("one"), model("two")] })).toThrow(
    'The streams "one" and "two" have the path "/app/v1/things".',
  );
});
