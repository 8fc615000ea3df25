import type { ErrorJson } from "@khala/contracts/sync/v1";
import { defineModel, defineStream, runs } from "@khala/server";
import { until } from "@khala/test-support/clients/clients";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runSummaries } from "../../packages/server/src/sync/models/runtime.ts";

/** Anybody of the org may share a plan; nobody may fail one. */
const plans = defineStream({
  kind: "plan",
  path: "/app/v1/plans",
  scope: "runtime:write",
  events: runs.events,
  authorize(caller, stream, event) {
    if (event.type === "run.shared") return stream.owner !== "" && caller.org !== "";
    return event.type === "run.failed" ? false : undefined;
  },
});
const planStates = defineModel<{ last: string }>({
  topic: "app.plans",
  prefix: "plan",
  streams: [plans],
  project: (_, event) => ({ last: event.type }),
});

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, { models: [runSummaries, planStates] });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

const writer = (org_id: string, sub: string, scopes = ["runtime:write", RUNS]) =>
  server.token({ org_id, sub, scopes });
const service = (org_id: string) => writer(org_id, "robot", ["runtime:service"]);

interface Answer {
  readonly status: number;
  readonly seq?: string;
  readonly error?: ErrorJson;
}

let ids = 0;
async function append(
  token: string,
  path: string,
  type: string,
  data: object = {},
  event_id = `e${++ids}`,
): Promise<Answer> {
  const response = await server.request(`${path}/events`, token, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ events: [{ event_id, type, data }] }),
  });
  return { status: response.status, ...((await response.json()) as object) };
}

async function read(token: string, path: string, query = "") {
  const response = await server.request(`${path}/events${query}`, token);
  const body = (await response.json()) as {
    events: { seq: string; type: string; event_id: string; actor: string }[];
    next?: string;
    error?: ErrorJson;
  };
  return { status: response.status, ...body };
}

test("two orgs start runs with the same id, and each sees its own document", async () => {
  const run = "/runtime/v1/runs/INV-1";
  const [ada, eve] = [await writer("acme", "ada"), await writer("globex", "eve")];
  expect(await append(ada, run, "run.started", { title: "of acme" }, "first")).toMatchObject({ status: 201 });
  expect(await append(eve, run, "run.started", { title: "of globex" }, "first")).toEqual({
    status: 201,
    seq: "1",
  });
  for (const [token, title] of [
    [ada, "of acme"],
    [eve, "of globex"],
  ] as const) {
    await until("the document", async () => {
      const response = await server.request("/sync/v1/doc/run:INV-1", token);
      return response.ok && ((await response.json()) as { payload: object }).payload;
    }).then((payload) => expect(payload).toMatchObject({ title }));
  }
});

test("only the owner and services of its org append to a run, which looks missing to others", async () => {
  const run = "/runtime/v1/runs/mine";
  const [ada, bob] = [await writer("own", "ada"), await writer("own", "bob")];
  await append(ada, run, "run.started", { audience: ["ada"] });
  for (const [type, data] of [
    ["run.shared", { audience: ["bob"] }],
    ["run.deleted", {}],
  ] as const)
    expect(await append(bob, run, type, data)).toMatchObject({
      status: 404,
      error: { code: "not_found" },
    });
  expect(await append(await service("other"), run, "run.step", { name: "x" })).toMatchObject({ seq: "1" });
  expect(await append(await service("own"), run, "run.step", { name: "x" })).toMatchObject({ seq: "2" });
  expect(await append(ada, run, "run.completed")).toMatchObject({ seq: "3" });
});

test("an app may allow others some events, and nobody some", async () => {
  const plan = "/app/v1/plans/p";
  const [ada, bob] = [await writer("plan", "ada"), await writer("plan", "bob")];
  expect(await append(ada, plan, "run.started")).toMatchObject({ seq: "1" });
  expect(await append(bob, plan, "run.shared", { audience: [] })).toMatchObject({ seq: "2" });
  expect(await append(bob, plan, "run.step", { name: "x" })).toMatchObject({ status: 404 });
  expect(await append(await service("plan"), plan, "run.step", { name: "x" })).toMatchObject({ seq: "3" });
  for (const token of [ada, await service("plan")])
    expect(await append(token, plan, "run.failed", { error: "x" })).toMatchObject({ status: 404 });
  expect(await append(bob, plan, "run.shared", { audience: 7 })).toMatchObject({ status: 400 });
  expect(await append(ada, plan, "run.completed")).toMatchObject({ seq: "4" });
});

test("the owner and services of the org read a run's events in pages", async () => {
  const run = "/runtime/v1/runs/log";
  const [ada, bob] = [await writer("log", "ada"), await writer("log", "bob")];
  await append(ada, run, "run.started", { title: "t" }, "a");
  for (const name of ["b", "c"]) await append(ada, run, "run.step", { name }, name);
  const whole = await read(ada, run);
  expect(whole.events.map(({ seq, event_id, type }) => [seq, event_id, type])).toEqual([
    ["1", "a", "run.started"],
    ["2", "b", "run.step"],
    ["3", "c", "run.step"],
  ]);
  expect(whole.events[0]).toMatchObject({ data: { title: "t" }, actor: "ada", at: expect.any(String) });
  expect(whole.next).toBeUndefined();
  const first = await read(await service("log"), run, "?limit=2");
  expect(first).toMatchObject({ next: "2", events: [{ seq: "1" }, { seq: "2" }] });
  expect((await read(ada, run, `?limit=2&after=${first.next}`)).events).toMatchObject([{ seq: "3" }]);
  const refused = await read(bob, run);
  expect(refused.status).toBe(404);
  const none = await read(bob, "/runtime/v1/runs/none");
  expect(none.error).toEqual({ ...refused.error, message: refused.error!.message!.replace("log", "none") });
  expect((await read(await service("other"), run)).status).toBe(404);
  expect((await read(await writer("log", "ada", [RUNS]), run)).status).toBe(403);
  expect((await read(ada, run, "?after=x")).error).toMatchObject({ code: "invalid_request", field: "after" });
});

test("refuses a known event id with other content", async () => {
  const run = "/runtime/v1/runs/again";
  const ada = await writer("again", "ada");
  await append(ada, run, "run.started", { title: "t" }, "a");
  expect(await append(ada, run, "run.started", { title: "t" }, "a")).toMatchObject({ status: 201, seq: "1" });
  for (const [type, data] of [
    ["run.started", { title: "other" }],
    ["run.stopped", {}],
  ] as const)
    expect(await append(ada, run, type, data, "a")).toMatchObject({
      status: 409,
      error: { code: "event_conflict" },
    });
});
