import { expect, test } from "vitest";
import { defineApp } from "./app.ts";
import { agent } from "./blackboard/model/define_agent.ts";
import { scripted } from "./engines.ts";

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

test("every app accepts events of runs and workers", () => {
  expect(defineApp({}).streams.map(({ kind }) => kind)).toEqual(["run", "worker"]);
});
