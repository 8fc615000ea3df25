import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { agent, FatalError } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect } from "vitest";

/** A person who owns what is asked for, and everybody else. Each has only the scopes that the role needs. */
const PERSON = [
  RUNS,
  "runtime:write",
  "chat",
  "blackboard:read",
  "blackboard:write",
  "blackboard:work:editor",
];
export const ROLES = {
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
export type Role = keyof typeof ROLES;
export const roles = Object.keys(ROLES) as Role[];

export interface Request {
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

const agents = [
  agent("writer", { consumes: "Topic", expose: true, run: () => ({ type: "Article", payload: {} }) }),
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

/** Asks for an approval when it is told to pay, and goes on until it is stopped when it is told to stay. */
const engine = scripted({
  resumable: true,
  async *script({ message, resume }, signal) {
    if (message === "Stay" && !signal.aborted) await once(signal, "abort");
    if (message !== "Pay" || resume) return;
    yield { tool_call: { tool_call_id: "pay", tool: "pay", input: {} } };
    yield { tool_approval_requested: { tool_call_id: "pay" } };
  },
});

let database: TestDatabase;
/** Of the file that runs. */
export let server: TestServer;
export const tokens = {} as Record<Role, string>;
const ISSUER_KEY = "an issuer key of a test";

/** Starts a server for the tests of this file, and a token for each role. */
export function withServer(): void {
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
}

/** Signed with another key, long ago: which of the two is found first does not matter here. */
const expiredToken = "eyJhbGciOiJIUzI1NiIsImtpZCI6InRlc3QifQ.eyJleHAiOjF9.AA";

/** Tokens that are good for nothing: none, an expired one, and a revoked one with every scope. */
export async function worthlessTokens(): Promise<readonly string[]> {
  const revoked = await server.token({
    org_id: "acme",
    sub: "eve",
    scopes: [...PERSON, "ops", "platform"],
  });
  const { jti } = JSON.parse(Buffer.from(revoked.split(".")[1]!, "base64url").toString());
  const revoke = { path: "/api/sync/revoke", body: { jti } };
  expect((await ask("POST", revoke, tokens.operator)).status).toBe(204);
  return ["", expiredToken, revoked];
}

/** Sends a request; leaves streams at once. */
export async function ask(method: string, { path, body, headers = {} }: Request, token: string) {
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

/** As the owner, who is never refused. */
async function asOwner(method: string, request: Request): Promise<string> {
  const { status, text } = await ask(method, request, tokens.owner);
  expect(status, `${method} ${request.path}: ${text}`).toBeLessThan(300);
  return text;
}

/** What requests need to exist, made by its owner. */
export const make = {
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
  async conversation(message = "Hello") {
    const conv_id = `conv-${randomUUID()}`;
    await asOwner("POST", { path: "/chat", body: { conv_id, message } });
    for (const role of ["member", "viewer"] as const)
      await asOwner("PUT", { path: `/chat/${conv_id}/participants/${ROLES[role].sub}`, body: { role } });
    return conv_id;
  },
  /** A conversation whose answer is not over. */
  liveRun: () => make.conversation("Stay"),
  async toolCall() {
    const conv_id = await make.conversation("Pay");
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
