import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { testViewer } from "@khala/test-support/kit/viewer";
import { Server } from "@modelcontextprotocol/server";
import { expect, test } from "vitest";
import { openConcurrencyQuota } from "../../kit/quota.ts";
import { memoryRevocations } from "../auth/revocations.ts";
import type { McpClient } from "./mcp_server.ts";
import { openSessions } from "./sessions.ts";
import type { WatchOptions } from "./watch.ts";

const emptyServer = (_: McpClient) => new Server({ name: "test", version: "1" }, { capabilities: {} });

async function open({ clock = new ManualClock(), maxPerOrg = 2, newServer = emptyServer } = {}) {
  const context = await testContext({ clock });
  const revocations = memoryRevocations(clock);
  const sessions = openSessions(context, {
    revocations,
    // No test here watches anything.
    watching: {} as WatchOptions,
    newServer,
    idleMs: 1_000,
    places: openConcurrencyQuota(context, { name: "mcp_sessions", of: "MCP sessions", limit: maxPerOrg }),
  });
  return { clock, revocations, sessions };
}

const HEADERS = { accept: "application/json, text/event-stream", "content-type": "application/json" };
const INITIALIZE = {
  jsonrpc: "2.0",
  id: 0,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
};

const caller = (org = "acme") => ({ viewer: testViewer({ org }), authorization: "", address: "" });

test("an org has a limited number of sessions, and an ended one frees a slot", async () => {
  const { sessions } = await open();
  const first = await sessions.open(caller());
  await sessions.open(caller());
  await expect(sessions.open(caller())).rejects.toMatchObject({ code: "limit_exceeded" });
  await sessions.open(caller("globex"));
  await first.close();
  await sessions.open(caller());
});

test("a session ends when it is idle for a while", async () => {
  const { clock, sessions } = await open();
  const { id } = await sessions.open(caller());
  expect(sessions.find(id, caller()).id).toBe(id);
  await clock.advance(1_000);
  expect(() => sessions.find(id, caller())).toThrow("The MCP session has ended");
  expect(sessions.size).toBe(0);
});

test("a session ends when its token is revoked", async () => {
  const { clock, revocations, sessions } = await open();
  await sessions.open(caller());
  await revocations.revoke({ org: "acme", subject: caller().viewer.subject }, clock.now() + 1_000);
  expect(sessions.size).toBe(0);
});

test("requests of one session at the same time are each served with their own token", async () => {
  const server = (client: McpClient) => {
    const made = new Server({ name: "test", version: "1" }, { capabilities: { tools: {} } });
    made.setRequestHandler("tools/list", async () => {
      const before = client.caller().authorization;
      await new Promise(setImmediate);
      const name = `${before}, ${client.caller().authorization}`;
      return { tools: [{ name, inputSchema: { type: "object" } }] };
    });
    return made;
  };
  const { sessions } = await open({ newServer: server });
  const as = (authorization: string) => ({ ...caller(), authorization });
  const session = await sessions.open(as("greater"));
  let id = 0;
  const send = async (authorization: string, method: string, params: object = {}) => {
    const body = { jsonrpc: "2.0", id: ++id, method, params };
    const headers = {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-session-id": session.id,
    };
    const request = new Request("http://localhost/mcp", { method: "POST", headers });
    const { response, done } = await session.handle(request, body, as(authorization));
    const text = await response.text();
    done();
    return text;
  };
  const info = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } };
  await send("greater", "initialize", info);
  const [lesser, greater] = await Promise.all([send("lesser", "tools/list"), send("greater", "tools/list")]);
  expect(lesser).toContain('"lesser, lesser"');
  expect(greater).toContain('"greater, greater"');
});

test("a request that waits is answered when its session ends", async () => {
  const waiting = Promise.withResolvers<void>();
  const server = () => {
    const made = new Server({ name: "test", version: "1" }, { capabilities: { tools: {} } });
    made.setRequestHandler("tools/list", () => {
      waiting.resolve();
      return new Promise(() => {});
    });
    return made;
  };
  const { clock, revocations, sessions } = await open({ newServer: server });
  const session = await sessions.open(caller());
  const send = (body: object) => {
    const headers = { ...HEADERS, "mcp-session-id": session.id };
    return session.handle(new Request("http://localhost/mcp", { method: "POST", headers }), body, caller());
  };
  await send(INITIALIZE);
  const answer = send({ jsonrpc: "2.0", id: 1, method: "tools/list", params: {} });
  await waiting.promise;
  await revocations.revoke({ org: "acme", subject: caller().viewer.subject }, clock.now() + 1_000);
  await expect(answer).rejects.toMatchObject({ code: "not_found" });
});
