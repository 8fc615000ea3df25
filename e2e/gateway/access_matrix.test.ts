import { randomUUID } from "node:crypto";
import { agent, FatalError } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { RawClient } from "@khala/test-support/clients/clients";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

/** A person who owns what is asked for, and everybody else. Each has only the scopes that the role needs. */
const PERSON = [
  RUNS,
  "runtime:write",
  "chat",
  "blackboard:read",
  "blackboard:write",
  "blackboard:work:editor",
];
const ROLES = {
  owner: { org_id: "acme", sub: "ada", scopes: PERSON },
  other: { org_id: "acme", sub: "bob", scopes: PERSON },
  // The same name in another org, with every scope that an org has to give.
  foreign: {
    org_id: "globex",
    sub: "ada",
    scopes: [...PERSON, "runtime:service", "chat:service", "blackboard:work:*", "ops"],
  },
  bare: { org_id: "acme", sub: "ada", scopes: [] },
  operator: { org_id: "acme", sub: "olga", scopes: ["ops"] },
  service: { org_id: "acme", sub: "svc", scopes: ["runtime:service", "chat:service"] },
  platform: { org_id: "host", sub: "pia", scopes: ["platform"] },
  // They take part in the owner's conversations; everywhere else they are others.
  member: { org_id: "acme", sub: "mel", scopes: PERSON },
  viewer: { org_id: "acme", sub: "vic", scopes: PERSON },
} as const;
type Role = keyof typeof ROLES;
const roles = Object.keys(ROLES) as Role[];

interface Request {
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

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

const agents = [
  // Claims of the test stay open.
  agent("editor", { consumes: "Draft", concurrency: 100 }),
  agent("reviewer", { consumes: "Plan", approval: true, run: () => {} }),
  agent("failing", {
    consumes: "Bad",
    run() {
      throw new FatalError("It fails always.");
    },
  }),
];

/** Asks for an approval when it is told to pay. */
const engine = scripted({
  resumable: true,
  *script({ message, resume }) {
    if (message !== "Pay" || resume) return;
    yield { tool_call: { tool_call_id: "pay", tool: "pay", input: {} } };
    yield { tool_approval_requested: { tool_call_id: "pay" } };
  },
});

let database: TestDatabase;
let server: TestServer;
const tokens = {} as Record<Role, string>;
const ISSUER_KEY = "an issuer key of a test";

beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, {
    agents,
    engine,
    dev: false,
    settings: { KHALA_AUTH_ISSUER_KEY: ISSUER_KEY, KHALA_BOARD_POLL_MS: "50" },
  });
  for (const role of roles)
    tokens[role] = await server.token({ ...ROLES[role], scopes: [...ROLES[role].scopes] });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

async function ask(method: string, { path, body, headers = {} }: Request, token: string) {
  const leaving = new AbortController();
  const response = await server.request(path, token, {
    method,
    signal: leaving.signal,
    headers: { ...(body !== undefined && { "content-type": "application/json" }), ...headers },
    ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
  });
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
  const text = isStream ? "" : await response.text();
  leaving.abort();
  return { status: response.status, text };
}

async function asOwner(method: string, request: Request): Promise<string> {
  const { status, text } = await ask(method, request, tokens.owner);
  expect(status, `${method} ${request.path}: ${text}`).toBeLessThan(300);
  return text;
}

/** What each route needs to exist, made by its owner. */
const make = {
  async run() {
    const id = `run-${randomUUID()}`;
    const events = [{ event_id: "first", type: "run.started", data: { audience: ["ada"] } }];
    await asOwner("POST", { path: `/runtime/v1/runs/${id}/events`, body: { events } });
    return id;
  },
  async worker() {
    const id = `worker-${randomUUID()}`;
    const events = [{ event_id: "first", type: "worker.registered", data: {} }];
    await asOwner("POST", { path: `/runtime/v1/workers/${id}/events`, body: { events } });
    return id;
  },
  async notification() {
    const id = `notification-${randomUUID()}`;
    const data = { to: ROLES.owner.sub, text: "Hello" };
    const events = [{ event_id: "first", type: "notification.sent", data }];
    await asOwner("POST", { path: `/runtime/v1/notifications/${id}/events`, body: { events } });
    return id;
  },
  async document() {
    const key = `run:${await make.run()}`;
    await eventually("the document", async () => {
      const { status } = await ask("GET", { path: `/sync/v1/doc/${key}` }, tokens.owner);
      return status === 200;
    });
    return key;
  },
  async conversation() {
    const conv_id = `conv-${randomUUID()}`;
    await asOwner("POST", { path: "/chat", body: { conv_id, message: "Hello" } });
    for (const role of ["member", "viewer"] as const)
      await asOwner("PUT", { path: `/chat/${conv_id}/participants/${ROLES[role].sub}`, body: { role } });
    return conv_id;
  },
  async toolCall() {
    const conv_id = `conv-${randomUUID()}`;
    await asOwner("POST", { path: "/chat", body: { conv_id, message: "Pay" } });
    await asOwner("PUT", { path: `/chat/${conv_id}/participants/mel`, body: { role: "member" } });
    await asOwner("PUT", { path: `/chat/${conv_id}/participants/vic`, body: { role: "viewer" } });
    await eventually("a call that waits", async () => {
      const { run } = JSON.parse(await asOwner("GET", { path: `/chat/${conv_id}` }));
      return run?.status === "waiting";
    });
    return conv_id;
  },
  async file() {
    const conv_id = await make.conversation();
    const path = `/files?conv_id=${conv_id}&name=hello.txt`;
    const stored = await asOwner("POST", { path, headers: { "content-type": "text/plain" }, body: "hello" });
    return JSON.parse(stored).file_id as string;
  },
  async stream() {
    const path = `/streams/${randomUUID()}`;
    await asOwner("PUT", { path, headers: { "content-type": "text/plain" }, body: "hello" });
    return path;
  },
  async artifact(type = "Note", more: object = {}) {
    const body = { type, payload: { text: "x" }, ...more };
    const answer = JSON.parse(await asOwner("POST", { path: "/blackboard/v1/artifacts", body }));
    return answer.artifacts[0].id as string;
  },
  privateArtifact: () => make.artifact("Note", { visibility: { kind: "private", agents: ["editor"] } }),
  async correlation() {
    const correlation_id = `request-${randomUUID()}`;
    await make.artifact("Note", { correlation_id });
    return correlation_id;
  },
  async claim() {
    await make.artifact("Draft");
    const path = "/blackboard/v1/agents/editor/claim";
    const claimed = await asOwner("POST", { path, body: { worker: "w", max: 1, wait_ms: 20_000 } });
    return JSON.parse(claimed).claims[0].claim_id as string;
  },
  async approval() {
    await make.artifact("Plan");
    return eventually("an approval", async () => {
      const { approvals } = JSON.parse(await asOwner("GET", { path: "/blackboard/v1/approvals" }));
      return approvals[0]?.id as string | undefined;
    });
  },
  async deadLetter() {
    await make.artifact("Bad");
    return eventually("a dead letter", async () => {
      const path = "/blackboard/v1/dead-letters/failing";
      const { dead_letters } = JSON.parse(await asOwner("GET", { path }));
      return dead_letters.find((letter: { replayed_at?: string }) => !letter.replayed_at)?.id as
        | string
        | undefined;
    });
  },
};

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
    const revoked = await server.token({
      org_id: "acme",
      sub: "eve",
      scopes: [...PERSON, "ops", "platform"],
    });
    const { jti } = JSON.parse(Buffer.from(revoked.split(".")[1]!, "base64url").toString());
    const revoke = { path: "/api/sync/revoke", body: { jti } };
    expect((await ask("POST", revoke, tokens.operator)).status).toBe(204);
    for (const token of ["", expiredToken, revoked]) {
      const { status } = await ask(method, row.request(row.unknown ?? "nothing"), token);
      expect(status, token.slice(0, 20)).toBe(401);
    }
  });
});

/** Signed with another key, long ago: which of the two is found first does not matter here. */
const expiredToken = "eyJhbGciOiJIUzI1NiIsImtpZCI6InRlc3QifQ.eyJleHAiOjF9.AA";

/** For each event of each channel: what the roles get. */
const CHANNELS: Record<
  string,
  { payload: () => Promise<object> | object; topic?: () => Promise<string>; cells: string }
> = {
  "sync:v1 phx_join": { payload: () => ({}), cells: "ok ok ok ok ok ok ok ok ok" },
  "sync:v1 subscribe": {
    payload: () => ({ topics: [RUNS] }),
    cells: "ok ok ok forbidden_topic forbidden_topic forbidden_topic forbidden_topic ok ok",
  },
  "sync:v1 unsubscribe": { payload: () => ({ topics: [RUNS] }), cells: "ok ok ok ok ok ok ok ok ok" },
  "sync:v1 heartbeat": { payload: () => ({}), cells: "ok ok ok ok ok ok ok ok ok" },
  "conversation: phx_join": {
    topic: make.conversation,
    payload: () => ({}),
    cells: "ok not_found ok missing_scope missing_scope ok missing_scope ok ok",
  },
  "conversation: chat": {
    topic: make.conversation,
    payload: () => ({ message: "Again", policy: "queue" }),
    cells: "ok - ok - - ok - ok missing_role",
  },
  "conversation: stop": {
    topic: make.conversation,
    payload: () => ({}),
    cells: "ok - ok - - ok - ok missing_role",
  },
  "conversation: state": { topic: make.conversation, payload: () => ({}), cells: "ok - ok - - ok - ok ok" },
  "conversation: typing": {
    topic: make.conversation,
    payload: () => ({ typing: true }),
    cells: "ok - ok - - ok - ok ok",
  },
  "ops:v1 phx_join": {
    payload: () => ({}),
    cells: "missing_scope missing_scope ok missing_scope ok missing_scope ok missing_scope missing_scope",
  },
};

test("every event of every channel has a row", () => {
  const events = server.khala.gateway.channels.flatMap(({ topic, events }) =>
    ["phx_join", ...Object.keys(events)].map((event) => `${topic} ${event}`),
  );
  expect(Object.keys(CHANNELS).sort()).toEqual(events.sort());
});

describe.each(Object.keys(CHANNELS))("%s", (name) => {
  const { payload, topic, cells } = CHANNELS[name]!;
  const [channel, event] = name.split(" ") as [string, string];

  test.each(roles.map((role, i) => [role, cells.split(" ")[i]!] as const))(
    "%s: %s",
    async (role, expected) => {
      const joined = topic ? `${channel}${await topic()}` : channel;
      await using raw = await RawClient.connect(server.socketUrl, { token: tokens[role] });
      const reply = async (pushed: string, body: object) => {
        const { status, response } = (await raw.push(joined, pushed, body)) as {
          status: string;
          response: { error?: { code: string } };
        };
        return status === "ok" ? "ok" : response.error?.code;
      };
      if (event !== "phx_join") {
        const join = await reply("phx_join", event === "typing" ? { device: "laptop" } : {});
        // A role that may not join has nothing to push to.
        if (expected === "-") return expect(join).not.toBe("ok");
      }
      expect(await reply(event, await payload())).toBe(expected);
    },
  );
});
