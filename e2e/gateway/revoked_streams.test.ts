import { randomUUID } from "node:crypto";
import type { QuotaListJson } from "@khala/contracts/ops/v1";
import type { EngineFactory } from "@khala/server/engines";
import { until } from "@khala/test-support/clients/clients";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";

/** What a client of MCP says with each request. */
const MCP_CLIENT = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
const clock = new JumpClock();
/** Answers, and does not come to an end. */
const engine: EngineFactory = () => ({
  async *run(_, signal) {
    yield { text_delta: { text: "Well," } };
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  },
});
let database: TestDatabase;
let here: TestServer;
let there: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  here = await startServer(database.url, { clock, engine });
  there = await startServer(database.url, { clock, engine });
});
afterAll(async () => {
  await here[Symbol.asyncDispose]();
  await there[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

interface Stream {
  readonly name: string;
  ended: boolean;
}

/** Opens a stream, and reads it to its end. */
async function follow(name: string, asked: Promise<Response>): Promise<Stream> {
  const response = await asked;
  expect(response.status, name).toBe(200);
  const reader = response.body!.getReader();
  const stream: Stream = { name, ended: false };
  const first = await reader.read();
  expect(first.done, name).toBe(false);
  const rest = async () => {
    for (;;) if ((await reader.read()).done) return;
  };
  // A stream that is cut is a stream that has ended.
  void rest()
    .catch(() => {})
    .then(() => {
      stream.ended = true;
    });
  return stream;
}

async function followAll(org_id: string, sub: string, elsewhere = there) {
  const token = await here.token({ org_id, sub, scopes: ["chat"] });
  const send = (at: TestServer, method: string, path: string, body?: string, type = "application/json") =>
    at.request(path, token, {
      method,
      ...(body !== undefined && { body, headers: { "content-type": type } }),
    });
  const [ai, agUi, stream] = [randomUUID(), randomUUID(), `/streams/${randomUUID()}`];
  await send(here, "POST", "/chat", JSON.stringify({ conv_id: ai, message: "Hello" }));
  await send(here, "PUT", stream, "hello", "text/plain");
  const messages = [{ id: "m", role: "user", content: "Hello" }];
  const run = JSON.stringify({ threadId: agUi, runId: randomUUID(), messages });
  const streams = await Promise.all([
    follow("AI SDK", send(elsewhere, "GET", `/ai/chat/${ai}/stream`)),
    follow("AG-UI", send(here, "POST", "/ag-ui", run)),
    follow("durable stream", send(elsewhere, "GET", `${stream}?offset=-1&live=sse`)),
  ]);
  return { token, streams, convId: ai };
}

test.each([
  ["a token", (token: string) => ({ jti: JSON.parse(atob(token.split(".")[1]!)).jti })],
  ["a subject", () => ({ sub: "ada" })],
  ["an org", (_: string, org: string) => ({ org_id: org })],
] as const)("revoking %s ends its HTTP streams on every server, and no others", async (_, revoked) => {
  const org = `org-${randomUUID()}`;
  const { token, streams } = await followAll(org, "ada");
  const others = await followAll(`${org}-other`, "ada");
  const ops = await here.token({ org_id: org, sub: "olga", scopes: ["ops"] });
  const answer = await here.request("/api/sync/revoke", ops, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(revoked(token, org)),
  });
  expect(answer.status).toBe(204);
  // The other server has no wakeups, so that it hears of it with its next poll.
  clock.jump(10_000);
  await until("they end", () => streams.every(({ ended }) => ended));
  expect(others.streams.filter(({ ended }) => ended)).toEqual([]);
});

test("every stream over HTTP counts in the quota of its org while it is open", async () => {
  const org_id = "counted";
  const operator = await here.token({ org_id, scopes: ["ops"] });
  const inUse = async () => {
    const { quotas } = (await (await here.request("/ops/v1/quotas", operator)).json()) as QuotaListJson;
    return quotas?.find(({ name }) => name === "live_streams")?.in_use ?? 0;
  };
  const { token, streams, convId } = await followAll(org_id, "ada", here);
  const resourceSubscriptions = [`khala://conversations/${convId}`];
  const listen = {
    jsonrpc: "2.0",
    id: 1,
    method: "subscriptions/listen",
    params: { _meta: MCP_CLIENT, notifications: { resourceSubscriptions } },
  };
  const headers = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "subscriptions/listen",
  };
  const body = JSON.stringify(listen);
  streams.push(await follow("MCP", here.request("/mcp", token, { method: "POST", headers, body })));
  expect(await inUse()).toBe(streams.length);

  const revoked = await here.request("/api/sync/revoke", operator, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sub: "ada" }),
  });
  expect(revoked.status).toBe(204);
  await until("their places are free", async () => (await inUse()) === 0);
});
