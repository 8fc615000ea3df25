import { createClient, memory, partOf } from "@khala/client";
import { defineApp, defineModel } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";

interface Task {
  readonly project_id: string;
  readonly title: string;
}

const tasks = defineModel({
  topic: "app.tasks",
  prefix: "task",
  streams: [],
  project: (before: Task | null) => before,
  orderBy: ["title"],
  by: ["project_id"],
});
const app = defineApp({ models: [tasks] });

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, { models: [tasks] });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

const put = (id: string, version: number, project_id: string, title: string) =>
  server.write({ key: `task:${id}`, version, org: "org-1", payload: { project_id, title }, model: tasks });

test("a client of one project has only that part, in order, live, and without a list after a reload", async () => {
  await Promise.all([put("1", 1, "p1", "b"), put("2", 1, "p1", "a"), put("3", 1, "p2", "c")]);
  const storage = memory();
  const where = { project_id: "p1" };
  const name = partOf("app.tasks", where);
  const open = () =>
    createClient<typeof app>({ url: server.url, token: () => server.token(), storage, shareTabs: false });
  const khala = open();
  const titles = (client: typeof khala) =>
    client.sync.list("app.tasks", { where, order: "-title" }).items.map(({ data }) => data.title);
  const stop = khala.sync.subscribe(name, () => {});
  await khala.sync.ready(name);
  expect(titles(khala)).toEqual(["b", "a"]);
  await put("2", 2, "p1", "z");
  await put("3", 2, "p1", "y");
  await put("1", 2, "p2", "b");
  await eventually("the list", () => titles(khala).join() === "z,y");
  // Only the part was listed and followed.
  expect(khala.sync.list("app.tasks").items).toEqual([]);
  stop();
  await khala.close();
  await put("4", 1, "p1", "x");
  await put("3", 3, "p2", "y");
  const again = open();
  again.sync.subscribe(name, () => {});
  await again.sync.ready(name);
  await eventually("the list", () => titles(again).join() === "z,x");
  await again.close();
});

test("refuses an undeclared part for good, and names the declared ones", async () => {
  const khala = createClient<typeof app>({ url: server.url, token: () => server.token() });
  const wrong = partOf("app.tasks", { title: "x" });
  await expect(khala.sync.ready(wrong)).rejects.toMatchObject({
    code: "invalid_request",
    message: expect.stringContaining("project_id"),
  });
  await khala.close();
});
