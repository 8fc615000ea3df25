import { defineModel, runSummaries, workerSummaries } from "@khala/server";
import { listPage } from "@khala/test-support/clients/lists";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";

const TASKS = "app.tasks";
const tasks = defineModel({
  topic: TASKS,
  prefix: "task",
  streams: [],
  project: (before: { project_id: string; status: string; updated_at: string } | null) => before,
  orderBy: ["-updated_at", "status"],
  filter: ["status"],
  by: ["project_id"],
});

let database: TestDatabase;
let server: TestServer;
let token: string;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, { models: [tasks, runSummaries, workerSummaries] });
  token = await server.token();
  for (let i = 0; i < 6; i++) {
    const payload = {
      project_id: `p${i % 2}`,
      status: i < 3 ? "open" : "done",
      updated_at: `2026-01-0${1 + (i % 4)}`,
    };
    await server.write({ key: `task:${i}`, version: 1, org: "org-1", payload, model: tasks });
  }
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

async function idsOf(query: string): Promise<string> {
  const page = await listPage(server, token, TASKS, query);
  return page.documents.map(({ doc_key }) => doc_key.slice(5)).join("");
}

test("lists a part in a declared order, with a filter", async () => {
  expect(await idsOf("")).toBe("012345");
  expect(await idsOf("order=-updated_at")).toBe("325140");
  expect(await idsOf("order=-updated_at&filter.status=open")).toBe("210");
  expect(await idsOf("filter.status=done&filter.project_id=p1")).toBe("35");
  expect(await idsOf("project_id=p1&order=-updated_at")).toBe("351");
  expect(await idsOf("doc_key=task:4")).toBe("4");
});

test("pages of every list continue where the previous one ended", async () => {
  for (const query of ["", "order=-updated_at", "order=status&project_id=p0", "filter.status=open"]) {
    let ids = "";
    let after: string | null = "";
    while (after !== null) {
      const page = await listPage(server, token, TASKS, `limit=1&after=${after}&${query}`);
      ids += page.documents.map(({ doc_key }) => doc_key.slice(5)).join("");
      after = page.next;
    }
    expect(ids).toBe(await idsOf(query));
  }
});

test("refuses an undeclared or unknown field, with the declared ones", async () => {
  const { next } = await listPage(server, token, TASKS, "limit=1&order=-updated_at");
  const changed = `${next!.slice(0, -3)}${next!.at(-3) === "A" ? "B" : "A"}${next!.slice(-2)}`;
  const cases: [query: string, field: string, message: string][] = [
    ["order=updated_at", "order", "-updated_at, status"],
    ["order=", "order", "-updated_at, status"],
    ["filter.title=x", "filter.title", "filter.status, filter.project_id"],
    ["color=red", "color", "order, limit, after, doc_key, project_id, filter.status, filter.project_id"],
    ["status=open", "status", "filter.status"],
    ["filter.status=a&filter.status=b", "filter.status", "one string"],
    ["project_id=p1&doc_key=task:1", "project_id", "doc_key only without other fields"],
    ["project_id=p1&filter.project_id=p2", "filter.project_id", "contradicts"],
    ["doc_key=run:1", "doc_key", 'starts with "task:"'],
    ["limit=0", "limit", "1 to 1000"],
    ["after=AAAA", "after", "next"],
    ["after=%00", "after", "next"],
    [`order=-updated_at&after=${changed}`, "after", "next"],
    [`order=-updated_at&after=${next!.slice(0, -4)}`, "after", "next"],
    // The place of another order is no place in this one.
    [`after=${next}`, "after", "same order and filters"],
    [`order=-updated_at&filter.status=open&after=${next}`, "after", "same order and filters"],
  ];
  for (const [query, field, message] of cases) {
    const response = await server.request(`/sync/v1/list/${TASKS}?${query}`, token);
    const body = (await response.json()) as { error: { code: string; field: string; message: string } };
    expect([response.status, body.error.code, body.error.field], query).toEqual([
      400,
      "invalid_request",
      field,
    ]);
    expect(body.error.message, query).toContain(message);
  }
  const response = await server.request(`/sync/v1/list/${workerSummaries.topic}?order=-name`, token);
  expect(await response.json()).toMatchObject({
    error: { message: expect.stringContaining("declares none") },
  });
});

test("lists runs newest first", async () => {
  for (const i of [1, 0, 2]) {
    const payload = { run_id: `r${i}`, status: "running", started_at: `2026-01-0${1 + i}T00:00:00.000Z` };
    await server.write({ key: `run:r${i}`, version: 1, org: "org-1", payload });
  }
  const { documents } = await listPage(server, token, RUNS, "order=-started_at");
  expect(documents.map(({ doc_key }) => doc_key)).toEqual(["run:r2", "run:r1", "run:r0"]);
});
