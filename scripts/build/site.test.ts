import { expect, test } from "vitest";
import { leaves } from "../../site/.vitepress/leaves.ts";
import { importName } from "../../site/import_name.ts";

const leavesFrom = (page: string, target: string) => leaves(target, `/repo/docs/${page}`, "/repo/docs");

test("keeps links to pages, headings and other sites", () => {
  for (const target of [
    "AGENTS.md",
    "protocol/HTTP.md#tokens",
    "#words",
    "adr/",
    "https://example.com/a.ts",
    "/api/",
  ])
    expect(leavesFrom("CONCEPTS.md", target), target).toBe(false);
  expect(leavesFrom("protocol/HTTP.md", "../sync/METRICS.md")).toBe(false);
});

test("shows links to files without a page as paths", () => {
  for (const target of [
    "../compose.yaml",
    "../README.md",
    "../packages/server/src/khala.ts",
    "../deploy",
    "notes.txt",
  ])
    expect(leavesFrom("OPERATIONS.md", target), target).toBe(true);
  expect(leavesFrom("protocol/HTTP.md", "../../proto/openagents/sync/v1/http.proto")).toBe(true);
});

test("names a module of the API reference by its import", () => {
  expect(importName("client/src")).toBe("@khala/client");
  expect(importName("client/src/adapters/tanstack_query")).toBe("@khala/client/tanstack-query");
  expect(() => importName("client/src/core")).toThrow("does not export");
});
