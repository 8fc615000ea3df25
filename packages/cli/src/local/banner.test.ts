import { agent, defineApp, lightningControlPlane, runSummaries } from "@khala/server";
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
  expect(titles({ engine: scripted() })).toEqual(["Send a message to the agent"]);
  expect(titles({ agents: [nothing] })).toEqual(["Publish an artifact"]);
  expect(titles({ models: [runSummaries] })).toEqual(["Append an event"]);
});

test("shows an append of one of the app's own events", () => {
  const [section] = sectionsOf(URL, defineApp({ models: [lightningControlPlane] }));
  expect(section!.lines[0]).toContain(`${URL}/lightning/v1/invoices/hello/events`);
});
