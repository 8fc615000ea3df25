import type { AgentListJson, LagResponseJson } from "@khala/contracts/blackboard/v1";
import type { QuotaListJson, QuotaUseJson } from "@khala/contracts/ops/v1";
import { agent } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { redisHere, testRedis } from "@khala/test-support/redis/redis";
import { BACKENDS, backendSettings } from "@khala/test-support/servers/backends";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";

const LIMIT = 2_000;
const SCOPES = ["runtime:write", "chat", "blackboard:read", "blackboard:write", "ops"];
/** No worker asks for its tasks, so they wait. */
const remote = agent("remote", { consumes: "Errand" });

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, {
    agents: [remote],
    settings: { KHALA_MAX_STORED_BYTES_PER_ORG: String(LIMIT) },
  });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

let org: string;
let n = 0;
beforeEach(() => {
  org = `org-${++n}`;
});

const tokenOf = (org_id: string, ...more: string[]) => server.token({ org_id, scopes: [...SCOPES, ...more] });

async function send(token: string, method: string, path: string, body?: unknown, type = "application/json") {
  const response = await server.request(path, token, {
    method,
    ...(body !== undefined && {
      body: typeof body === "string" ? body : JSON.stringify(body),
      headers: { "content-type": type, authorization: `Bearer ${token}` },
    }),
  });
  return { status: response.status, body: (await response.json().catch(() => undefined)) as never };
}

async function quotas(token: string, query = ""): Promise<readonly QuotaUseJson[]> {
  const { status, body } = await send(token, "GET", `/ops/v1/quotas${query}`);
  expect(status).toBe(200);
  return (body as QuotaListJson).quotas ?? [];
}

const named = (uses: readonly QuotaUseJson[], name: string, of = org) =>
  uses.find((use) => use.name === name && use.org_id === of);

test("an org at its limit is refused at every endpoint that stores, and may read and delete", async () => {
  const token = await tokenOf(org);
  const writes: readonly (readonly [method: string, path: string, body: unknown, type?: string])[] = [
    ["POST", "/blackboard/v1/artifacts", { type: "Note", payload: "x" }],
    [
      "POST",
      `/runtime/v1/runs/r-${org}/events`,
      { events: [{ event_id: "e", type: "run.started", data: {} }] },
    ],
    ["POST", "/chat", { conv_id: `c-${org}`, message: "hello", policy: "queue" }],
    ["PUT", `/streams/${org}/other`, "x", "text/plain"],
    ["POST", `/streams/${org}/s`, "x", "text/plain"],
  ];
  expect(await send(token, "PUT", `/streams/${org}/s`, "x".repeat(LIMIT), "text/plain")).toMatchObject({
    status: 201,
  });
  for (const [method, path, body, type] of writes)
    expect(await send(token, method, path, body, type), path).toMatchObject({
      status: 429,
      body: { error: { code: "limit_exceeded", field: "stored_bytes", retry_after_ms: 60_000 } },
    });
  const other = await tokenOf(`${org}-other`);
  for (const [method, path, body, type] of writes.slice(0, 4))
    expect((await send(other, method, path, body, type)).status, path).toBeLessThan(300);
  expect((await server.request(`/streams/${org}/s?offset=-1`, token)).status).toBe(200);
  expect((await send(token, "DELETE", `/streams/${org}/s`)).status).toBe(204);
  expect(named(await quotas(token), "stored_bytes")).toMatchObject({ limit: LIMIT, rejected: writes.length });
  expect(await server.metric("khala_quota_rejections_total", { quota: "stored_bytes" })).toBe(writes.length);
});

test("an operator sees the quotas of its org, and the platform those of every org", async () => {
  const token = await tokenOf(org);
  await send(token, "POST", "/blackboard/v1/artifacts", { type: "Errand", payload: 1 });
  await eventually("the task waits", async () => named(await quotas(token), "waiting_tasks")?.in_use === 1);
  const own = await quotas(token);
  expect(own.map(({ name }) => name).toSorted()).toEqual([
    "board_artifacts",
    "board_claims",
    "chat_messages",
    "chat_runs",
    "live_streams",
    "mcp_sessions",
    "revocations",
    "sockets",
    "stored_bytes",
    "subscriptions",
    "waiting_tasks",
  ]);
  expect(new Set(own.map(({ org_id }) => org_id))).toEqual(new Set([org]));

  const other = `${org}-other`;
  expect(named(await quotas(await tokenOf(other)), "waiting_tasks", other)).toMatchObject({ in_use: 0 });
  const refused = await send(token, "GET", `/ops/v1/quotas?org=${other}`);
  expect(refused).toMatchObject({ status: 404, body: { error: { code: "not_found" } } });
  expect(await send(token, "GET", "/ops/v1/quotas?org=nobody")).toMatchObject({ status: 404 });

  const platform = await tokenOf(other, "platform");
  expect(named(await quotas(platform), "waiting_tasks")).toMatchObject({ in_use: 1 });
  expect(named(await quotas(platform, `?org=${org}`), "waiting_tasks")).toMatchObject({ in_use: 1 });
});

test("an org sees its own tasks and lag of an agent, and the platform all", async () => {
  const token = await tokenOf(org);
  const other = await tokenOf(`${org}-other`);
  const platform = await tokenOf(`${org}-other`, "platform");
  const waiting = async (of: string) => {
    const { agents = [] } = (await send(of, "GET", "/blackboard/v1/agents")).body as AgentListJson;
    const found = agents.find(({ name }) => name === "remote");
    return Number(found?.waiting) + Number(found?.running);
  };
  const lag = async (of: string) => {
    const { partitions = [] } = (await send(of, "GET", "/blackboard/v1/lag")).body as LagResponseJson;
    return Number(partitions.find(({ reader }) => reader === "remote")?.lag);
  };
  const before = await waiting(platform);
  for (const payload of [1, 2, 3])
    await send(token, "POST", "/blackboard/v1/artifacts", { type: "Errand", payload });
  await eventually("they wait", async () => (await waiting(token)) === 3);
  expect([await waiting(other), await waiting(platform)]).toEqual([0, before + 3]);
  expect([await lag(token), await lag(other), await lag(platform)]).toEqual([3, 0, before + 3]);
});

describe.each(BACKENDS)("on %s", (backend) => {
  test("a recount finds everything an org stores, on every plane", async () => {
    await using own = await testDatabase();
    const board = await backendSettings(backend);
    // With Kafka, the conversations are on Redis: each plane is tested on each of its backends.
    await using redis = backend === "Kafka" && redisHere().shared ? await testRedis() : undefined;
    const clock = new JumpClock();
    await using counting = await startServer(own.url, {
      settings: { ...board, ...(redis && { REDIS_URL: redis.url }) },
      clock,
    });
    const token = await counting.token({ org_id: org, scopes: SCOPES });
    const text = "x".repeat(100);
    const write = (method: string, path: string, body: unknown) =>
      counting.request(path, token, {
        method,
        body: typeof body === "string" ? body : JSON.stringify(body),
        headers: { "content-type": typeof body === "string" ? "text/plain" : "application/json" },
      });
    const events = [{ event_id: "e", type: "run.started", data: { title: text } }];
    const answers = [
      await write("PUT", `/streams/${org}/s`, text),
      await write("POST", "/blackboard/v1/artifacts", { type: "Note", payload: text }),
      await write("POST", `/runtime/v1/runs/r-${org}/events`, { events }),
      await write("POST", "/chat", { conv_id: `c-${org}`, message: text }),
    ];
    expect(answers.map(({ status }) => status < 300)).toEqual([true, true, true, true]);
    await eventually("a recount has found everything", async () => {
      await own.database.query({ text: "UPDATE runtime.org_usage_recount SET next_at = now()" });
      clock.jump(60_000);
      // What was counted from requests alone is not taken for a recount.
      const rows = await own.database.query<{ plane: string }>({
        text: "SELECT plane FROM runtime.org_usage WHERE org_id = $1 AND bytes - since_recount >= 100 ORDER BY plane",
        values: [org],
      });
      return rows.map(({ plane }) => plane).join() === "blackboard,conversations,durable_streams,sync";
    });
  });
});
