import { randomUUID } from "node:crypto";
import { RUNS } from "@khala/test-support/servers/servers";
import { describe, expect, test } from "vitest";
import { ask, make, type Request, roles, server, tokens, withServer, worthlessTokens } from "./world.ts";

withServer();

interface Row {
  /** Makes what the request is about, as its owner; resolves with its name. Without it, the request is about no resource. */
  readonly make?: () => Promise<string>;
  /** A name that nobody has given, for comparison with what is not the caller's. */
  readonly unknown?: string;
  /** A name that nobody has given is created. */
  readonly creates?: true;
  readonly request: (name: string) => Request;
  /** The status for each role, in the order of ROLES. */
  readonly cells: string;
}

const append = (kind: string, type: string) => (name: string) => ({
  path: `/runtime/v1/${kind}/${name}/events`,
  body: { events: [{ event_id: randomUUID(), type, data: {} }] },
});
const chatBody = (conv_id: string) => ({ conv_id, message: "Again", policy: "queue" });
const aiBody = (id: string) => ({
  id,
  messages: [{ id: randomUUID(), role: "user", parts: [{ type: "text", text: "Again" }] }],
});

//                                                    owner other foreign bare operator service platform member viewer
const ROWS: Record<string, Row> = {
  "POST /runtime/v1/runs/:id/events": {
    make: make.run,
    request: append("runs", "run.stopped"),
    cells: "201 404 201 403 403 201 403 404 404",
  },
  "GET /runtime/v1/runs/:id/events": {
    make: make.run,
    request: (id) => ({ path: `/runtime/v1/runs/${id}/events` }),
    cells: "200 404 404 403 403 200 403 404 404",
  },
  "POST /runtime/v1/workers/:id/events": {
    make: make.worker,
    request: append("workers", "worker.heartbeat"),
    cells: "201 404 201 403 403 201 403 404 404",
  },
  "GET /runtime/v1/workers/:id/events": {
    make: make.worker,
    request: (id) => ({ path: `/runtime/v1/workers/${id}/events` }),
    cells: "200 404 404 403 403 200 403 404 404",
  },
  // Anybody of the org may append; the model lets the notification's subject alone change it.
  "POST /runtime/v1/notifications/:id/events": {
    make: make.notification,
    request: append("notifications", "notification.read"),
    cells: "201 201 201 403 403 201 403 201 201",
  },
  "GET /runtime/v1/notifications/:id/events": {
    make: make.notification,
    request: (id) => ({ path: `/runtime/v1/notifications/${id}/events` }),
    cells: "200 404 404 403 403 200 403 404 404",
  },
  "GET /sync/v1/doc/:doc_key": {
    make: make.document,
    unknown: "run:nothing",
    request: (key) => ({ path: `/sync/v1/doc/${key}` }),
    cells: "200 404 404 404 404 404 404 404 404",
  },
  "GET /sync/v1/list/:collection": {
    request: () => ({ path: `/sync/v1/list/${RUNS}` }),
    cells: "200 200 200 403 403 403 403 200 200",
  },

  "POST /chat": {
    make: make.conversation,
    request: (id) => ({ path: "/chat", body: chatBody(id) }),
    cells: "202 404 202 403 403 202 403 202 403",
  },
  "GET /chat": { request: () => ({ path: "/chat" }), cells: "200 200 200 403 403 200 403 200 200" },
  "GET /chat/:conv_id": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}` }),
    cells: "200 404 404 403 403 200 403 200 200",
  },
  "GET /chat/:conv_id/messages": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}/messages` }),
    cells: "200 404 404 403 403 200 403 200 200",
  },
  "GET /chat/:conv_id/log": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}/log` }),
    cells: "200 404 404 403 403 200 403 200 200",
  },
  "POST /chat/:conv_id/stop": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}/stop` }),
    cells: "200 404 404 403 403 200 403 200 403",
  },
  "DELETE /chat/:conv_id": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}` }),
    cells: "204 404 404 403 403 204 403 403 403",
  },
  "POST /chat/:conv_id/events": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}/events`, body: { events: [{ status: { text: "Looking" } }] } }),
    cells: "201 404 404 403 403 201 403 201 403",
  },
  "POST /chat/:conv_id/branch": {
    make: make.conversation,
    // There is no such message, which only those learn who may write.
    request: (id) => ({ path: `/chat/${id}/branch`, body: { message_id: "none" } }),
    cells: "404 404 404 403 403 404 403 404 403",
  },
  "GET /approvals": { request: () => ({ path: "/approvals" }), cells: "200 200 200 403 403 200 403 200 200" },
  "POST /chat/:conv_id/tools/:call_id": {
    make: make.toolCall,
    unknown: "conv-nothing",
    request: (id) => ({ path: `/chat/${id}/tools/pay`, body: { approve: true } }),
    cells: "200 404 404 403 403 200 403 200 403",
  },
  "GET /chat/:conv_id/queue": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}/queue` }),
    cells: "200 404 404 403 403 200 403 200 200",
  },
  "PATCH /chat/:conv_id/queue/:run_id": {
    make: make.conversation,
    // Nothing is queued there, which only those learn who may write.
    request: (id) => ({ path: `/chat/${id}/queue/nothing`, body: { message: "Other" } }),
    cells: "404 404 404 403 403 404 403 404 403",
  },
  "DELETE /chat/:conv_id/queue/:run_id": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}/queue/nothing` }),
    cells: "404 404 404 403 403 404 403 404 403",
  },
  "GET /chat/:conv_id/participants": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}/participants` }),
    cells: "200 404 404 403 403 200 403 200 200",
  },
  "PUT /chat/:conv_id/participants/:subject": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}/participants/carl`, body: { role: "viewer" } }),
    cells: "200 404 404 403 403 200 403 403 403",
  },
  "DELETE /chat/:conv_id/participants/:subject": {
    make: make.conversation,
    request: (id) => ({ path: `/chat/${id}/participants/carl` }),
    cells: "200 404 404 403 403 200 403 403 403",
  },
  "POST /files": {
    make: make.conversation,
    request: (id) => ({
      path: `/files?conv_id=${id}`,
      headers: { "content-type": "text/plain" },
      body: "hello",
    }),
    cells: "201 404 201 403 403 201 403 201 403",
  },
  "GET /files/:file_id": {
    make: make.file,
    request: (id) => ({ path: `/files/${id}` }),
    cells: "200 404 404 403 403 200 403 200 200",
  },
  "HEAD /files/:file_id": {
    make: make.file,
    request: (id) => ({ path: `/files/${id}` }),
    cells: "200 404 404 403 403 200 403 200 200",
  },
  "POST /ai/chat": {
    make: make.conversation,
    request: (id) => ({ path: "/ai/chat?policy=queue", body: aiBody(id) }),
    cells: "200 404 200 403 403 200 403 200 403",
  },
  "GET /ai/chat/:id/stream": {
    make: make.conversation,
    request: (id) => ({ path: `/ai/chat/${id}/stream` }),
    // Without a run there is nothing to resume, whether the conversation is there or not.
    cells: "20x 204 204 403 403 20x 403 20x 20x",
  },
  "POST /ai/chat/:id/stop": {
    make: make.conversation,
    request: (id) => ({ path: `/ai/chat/${id}/stop` }),
    cells: "200 404 404 403 403 200 403 200 403",
  },
  "DELETE /ai/chat/:id/stop": {
    make: make.conversation,
    request: (id) => ({ path: `/ai/chat/${id}/stop` }),
    cells: "200 404 404 403 403 200 403 200 403",
  },
  "POST /ag-ui": {
    make: make.conversation,
    request: (threadId) => ({
      path: "/ag-ui?policy=queue",
      body: { threadId, runId: randomUUID(), messages: [{ id: "m", role: "user", content: "Again" }] },
    }),
    cells: "200 404 200 403 403 200 403 200 403",
  },

  "PUT /streams/*": {
    make: make.stream,
    unknown: "/streams/nothing",
    creates: true,
    request: (path) => ({ path, headers: { "content-type": "text/plain" }, body: "" }),
    cells: "200 404 201 403 403 200 403 404 404",
  },
  "POST /streams/*": {
    make: make.stream,
    unknown: "/streams/nothing",
    request: (path) => ({ path, headers: { "content-type": "text/plain" }, body: "more" }),
    cells: "204 404 404 403 403 204 403 404 404",
  },
  "GET /streams/*": {
    make: make.stream,
    unknown: "/streams/nothing",
    request: (path) => ({ path }),
    cells: "200 404 404 403 403 200 403 404 404",
  },
  "HEAD /streams/*": {
    make: make.stream,
    unknown: "/streams/nothing",
    request: (path) => ({ path }),
    cells: "200 404 404 403 403 200 403 404 404",
  },
  "DELETE /streams/*": {
    make: make.stream,
    unknown: "/streams/nothing",
    request: (path) => ({ path }),
    cells: "204 404 404 403 403 204 403 404 404",
  },

  "POST /blackboard/v1/artifacts": {
    make: make.privateArtifact,
    // A new version of somebody's private artifact: only those who read it may replace it.
    request: (id) => ({
      path: "/blackboard/v1/artifacts",
      body: { id, version: 2, type: "Note", payload: {} },
    }),
    cells: "201 404 201 403 403 403 403 404 404",
  },
  "GET /blackboard/v1/artifacts": {
    request: () => ({ path: "/blackboard/v1/artifacts" }),
    cells: "200 200 200 403 403 403 403 200 200",
  },
  "GET /blackboard/v1/artifacts/:id": {
    make: make.privateArtifact,
    unknown: randomUUID(),
    request: (id) => ({ path: `/blackboard/v1/artifacts/${id}` }),
    cells: "200 404 404 403 403 403 403 404 404",
  },
  "GET /blackboard/v1/agents": {
    request: () => ({ path: "/blackboard/v1/agents" }),
    cells: "200 200 200 403 403 403 403 200 200",
  },
  "GET /blackboard/v1/lag": {
    request: () => ({ path: "/blackboard/v1/lag" }),
    cells: "200 200 200 403 403 403 403 200 200",
  },
  "POST /blackboard/v1/agents/:agent/pause": {
    request: () => ({ path: "/blackboard/v1/agents/reviewer/pause" }),
    cells: "403 403 403 403 403 403 204 403 403",
  },
  "POST /blackboard/v1/agents/:agent/resume": {
    request: () => ({ path: "/blackboard/v1/agents/reviewer/resume" }),
    cells: "403 403 403 403 403 403 204 403 403",
  },
  "POST /blackboard/v1/agents/:agent/cancel": {
    request: () => ({ path: "/blackboard/v1/agents/reviewer/cancel" }),
    cells: "403 403 403 403 403 403 204 403 403",
  },
  "GET /blackboard/v1/correlations/:correlation_id": {
    make: make.correlation,
    request: (id) => ({ path: `/blackboard/v1/correlations/${id}` }),
    cells: "200 200 404 403 403 403 403 200 200",
  },
  "POST /blackboard/v1/correlations/:correlation_id/pause": {
    make: make.correlation,
    request: (id) => ({ path: `/blackboard/v1/correlations/${id}/pause` }),
    cells: "204 404 404 403 204 403 403 404 404",
  },
  "POST /blackboard/v1/correlations/:correlation_id/cancel": {
    make: make.correlation,
    request: (id) => ({ path: `/blackboard/v1/correlations/${id}/cancel` }),
    cells: "204 404 404 403 204 403 403 404 404",
  },
  "POST /blackboard/v1/correlations/:correlation_id/resume": {
    make: make.correlation,
    request: (id) => ({ path: `/blackboard/v1/correlations/${id}/resume` }),
    cells: "202 404 404 403 202 403 403 404 404",
  },
  "GET /blackboard/v1/approvals": {
    request: () => ({ path: "/blackboard/v1/approvals" }),
    cells: "200 200 200 403 403 403 403 200 200",
  },
  "POST /blackboard/v1/approvals/:id": {
    make: make.approval,
    unknown: randomUUID(),
    request: (id) => ({ path: `/blackboard/v1/approvals/${id}`, body: { approved: true } }),
    cells: "204 204 404 403 403 403 403 204 204",
  },
  "GET /blackboard/v1/dead-letters/:agent": {
    request: () => ({ path: "/blackboard/v1/dead-letters/failing" }),
    cells: "200 200 200 403 403 403 403 200 200",
  },
  "GET /blackboard/v1/dead-letters/:agent/:id": {
    make: make.deadLetter,
    unknown: randomUUID(),
    request: (id) => ({ path: `/blackboard/v1/dead-letters/failing/${id}` }),
    cells: "200 200 404 403 403 403 403 200 200",
  },
  "POST /blackboard/v1/dead-letters/:agent/:id/replay": {
    make: make.deadLetter,
    unknown: randomUUID(),
    request: (id) => ({ path: `/blackboard/v1/dead-letters/failing/${id}/replay` }),
    cells: "202 202 404 403 403 403 403 202 202",
  },
  "POST /blackboard/v1/dead-letters/:agent/replay": {
    request: () => ({ path: "/blackboard/v1/dead-letters/failing/replay", body: {} }),
    cells: "202 202 202 403 403 403 403 202 202",
  },
  "POST /blackboard/v1/agents/:agent/claim": {
    request: () => ({
      path: "/blackboard/v1/agents/editor/claim",
      body: { worker: "w", max: 1, wait_ms: 0 },
    }),
    cells: "200 200 200 403 403 403 403 200 200",
  },
  "POST /blackboard/v1/claims/:claim_id/heartbeat": {
    make: make.claim,
    unknown: randomUUID(),
    request: (id) => ({ path: `/blackboard/v1/claims/${id}/heartbeat` }),
    cells: "200 200 404 403 403 403 403 200 200",
  },
  "POST /blackboard/v1/claims/:claim_id/events": {
    make: make.claim,
    unknown: randomUUID(),
    // The task belongs to no conversation.
    request: (id) => ({
      path: `/blackboard/v1/claims/${id}/events`,
      body: { events: [{ status: { text: "Looking" } }] },
    }),
    cells: "400 400 404 403 403 403 403 400 400",
  },
  "POST /blackboard/v1/claims/:claim_id/settle": {
    make: make.claim,
    unknown: randomUUID(),
    request: (id) => ({ path: `/blackboard/v1/claims/${id}/settle`, body: { outputs: [] } }),
    cells: "200 200 404 403 403 403 403 200 200",
  },

  "POST /api/sync/token": {
    request: () => ({ path: "/api/sync/token", body: { sub: "x", org_id: "acme", scopes: [] } }),
    cells: "401 401 401 401 401 401 401 401 401",
  },
  "POST /api/sync/revoke": {
    request: () => ({ path: "/api/sync/revoke", body: { jti: "a token of nobody" } }),
    cells: "403 403 204 403 204 403 204 403 403",
  },
  // Every token may connect: tools and resources ask for the scopes of their routes.
  "POST /mcp": {
    request: () => ({
      path: "/mcp",
      headers: { accept: "application/json, text/event-stream" },
      body: {
        jsonrpc: "2.0",
        id: 1,
        method: "initialize",
        params: {
          protocolVersion: "2025-06-18",
          capabilities: {},
          clientInfo: { name: "test", version: "1" },
        },
      },
    }),
    cells: "200 200 200 200 200 200 200 200 200",
  },
  // Without a session there is nothing to stream or to end.
  "GET /mcp": { request: () => ({ path: "/mcp" }), cells: "400 400 400 400 400 400 400 400 400" },
  "DELETE /mcp": { request: () => ({ path: "/mcp" }), cells: "400 400 400 400 400 400 400 400 400" },

  "POST /ops/v1/erase": {
    request: () => ({ path: "/ops/v1/erase", body: { subject: "nobody", dry_run: false } }),
    cells: "403 403 200 403 200 403 200 403 403",
  },
  "GET /ops/v1/overview": {
    request: () => ({ path: "/ops/v1/overview" }),
    cells: "403 403 200 403 200 403 200 403 403",
  },
  "GET /ops/v1/overview/history": {
    request: () => ({ path: "/ops/v1/overview/history" }),
    cells: "403 403 200 403 200 403 200 403 403",
  },
  "GET /ops/v1/app": {
    request: () => ({ path: "/ops/v1/app" }),
    cells: "403 403 200 403 200 403 200 403 403",
  },
  "GET /ops/v1/errors": {
    request: () => ({ path: "/ops/v1/errors" }),
    cells: "403 403 200 403 200 403 200 403 403",
  },
  "GET /ops/v1/topics": {
    request: () => ({ path: "/ops/v1/topics" }),
    cells: "403 403 200 403 200 403 200 403 403",
  },
  "GET /ops/v1/config": {
    request: () => ({ path: "/ops/v1/config" }),
    cells: "403 403 403 403 403 403 200 403 403",
  },
  "GET /ops/v1/parity": {
    request: () => ({ path: "/ops/v1/parity" }),
    cells: "403 403 403 403 403 403 200 403 403",
  },
  "POST /ops/v1/parity": {
    request: () => ({ path: "/ops/v1/parity" }),
    cells: "403 403 403 403 403 403 400 403 403",
  },
  "GET /ops/v1/sockets": {
    request: () => ({ path: "/ops/v1/sockets" }),
    cells: "403 403 200 403 200 403 403 403 403",
  },
  "GET /ops/v1/conversations": {
    request: () => ({ path: "/ops/v1/conversations" }),
    cells: "403 403 200 403 200 403 403 403 403",
  },
  "GET /ops/v1/failed-runs": {
    request: () => ({ path: "/ops/v1/failed-runs" }),
    cells: "403 403 200 403 200 403 403 403 403",
  },
  "GET /ops/v1/failed-streams": {
    request: () => ({ path: "/ops/v1/failed-streams" }),
    cells: "403 403 200 403 200 403 200 403 403",
  },
  "GET /ops/v1/set-aside": {
    request: () => ({ path: "/ops/v1/set-aside" }),
    cells: "403 403 200 403 200 403 200 403 403",
  },
  "POST /ops/v1/set-aside/:id/retry": {
    request: () => ({ path: "/ops/v1/set-aside/1/retry" }),
    cells: "403 403 404 403 404 403 404 403 403",
  },
  "DELETE /ops/v1/set-aside/:id": {
    request: () => ({ path: "/ops/v1/set-aside/1" }),
    cells: "403 403 404 403 404 403 404 403 403",
  },
  "GET /ops/v1/audit": {
    request: () => ({ path: "/ops/v1/audit" }),
    cells: "403 403 200 403 200 403 200 403 403",
  },
  "GET /ops/v1/quotas": {
    request: () => ({ path: "/ops/v1/quotas" }),
    cells: "403 403 200 403 200 403 200 403 403",
  },
  "GET /ops/v1/documents": {
    request: () => ({ path: `/ops/v1/documents?topic=${RUNS}` }),
    // The operator's token does not name the topic.
    cells: "403 403 200 403 403 403 403 403 403",
  },
  "GET /ops/v1/history/:doc_key": {
    make: make.document,
    unknown: "run:nothing",
    request: (key) => ({ path: `/ops/v1/history/${key}` }),
    cells: "403 403 404 403 404 403 403 403 403",
  },
  // A production server keeps no traces.
  "GET /ops/v1/traces": {
    request: () => ({ path: "/ops/v1/traces" }),
    cells: "403 403 404 403 404 403 403 403 403",
  },
  "GET /ops/v1/traces/:trace_id": {
    request: () => ({ path: `/ops/v1/traces/${"0".repeat(32)}` }),
    cells: "403 403 404 403 404 403 403 403 403",
  },
};

/** Routes that everybody may call: they say nothing of anybody. */
const PUBLIC = [
  "/",
  "/healthz",
  "/readyz",
  "/metrics",
  "/ops/v1/about",
  "/ws",
  "/ai/ws",
  "/socket/websocket",
  // What clients of MCP read before they have a token.
  "/.well-known/oauth-protected-resource",
  "/.well-known/oauth-protected-resource/mcp",
];

const nameOf = ({ method, path }: { method: string; path: string }) => `${method} ${path}`;

test("every guarded route has a row, and every row a route", () => {
  const { routes } = server.khala.gateway;
  const guarded = routes.filter(({ action }) => action !== undefined).map(nameOf);
  expect(Object.keys(ROWS).sort()).toEqual([...new Set(guarded)].sort());
  const open = routes.filter(({ action }) => action === undefined).map(({ path }) => path);
  const isPage = (path: string) =>
    server.khala.gateway.routes.some((route) => route.path === path && isFile(path));
  expect(open.filter((path) => !PUBLIC.includes(path) && !isPage(path))).toEqual([]);
});

/** The dashboard's pages and files. */
function isFile(path: string): boolean {
  return /^\/(sync|conversations|blackboard|operations)?$|^\/(assets\/.+|[\w.-]+\.\w+)$/.test(path);
}

describe.each(Object.keys(ROWS))("%s", (name) => {
  const [method, path] = name.split(" ") as [string, string];
  const row = ROWS[name]!;
  const cells = row.cells.split(" ");

  test.each(roles.map((role, i) => [role, cells[i]!] as const))("%s: %s", async (role, expected) => {
    const made = (await row.make?.()) ?? "";
    const answer = await ask(method, row.request(made), tokens[role]);
    const seen = expected.endsWith("x") ? `${String(answer.status).slice(0, 2)}x` : String(answer.status);
    expect(seen, `${path}: ${answer.text}`).toBe(expected);
    if (expected !== "404" || !row.unknown || row.creates) return;
    const none = await ask(method, row.request(row.unknown), tokens[role]);
    const shape = (text: string, about: string) => text.replaceAll(about, "…");
    expect({ ...answer, text: shape(answer.text, made) }).toEqual({
      ...none,
      text: shape(none.text, row.unknown),
    });
  });

  test("no token, an expired one and a revoked one get 401", async () => {
    for (const token of await worthlessTokens()) {
      const { status } = await ask(method, row.request(row.unknown ?? "nothing"), token);
      expect(status, token.slice(0, 20)).toBe(401);
    }
  });
});
