import { randomUUID } from "node:crypto";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import type { TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ADA, startMcpServer } from "./mcp_server.ts";

let database: TestDatabase;
let server: TestServer;
/** One that no chat changes. */
const TOPIC = "runtime.codex_worker_summaries";

beforeAll(async () => {
  database = await testDatabase();
  server = await startMcpServer(database.url);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

/** A client's session, whose requests may each carry another token. */
class Session {
  id = "";
  readonly heard: string[] = [];

  static async open(token: string): Promise<Session> {
    const session = new Session();
    const clientInfo = { name: "test", version: "1" };
    const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo };
    await session.ask(token, "initialize", params);
    return session;
  }

  async ask(token: string, method: string, params: object = {}) {
    const response = await server.request("/mcp", token, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        ...(this.id && { "mcp-session-id": this.id }),
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: randomUUID(), method, params }),
    });
    this.id ||= response.headers.get("mcp-session-id")!;
    return (await response.json()) as { error?: object; result?: { isError?: true; content: object[] } };
  }

  call(token: string, name: string, args: object) {
    return this.ask(token, "tools/call", { name, arguments: args });
  }

  /** Hears the notifications from now on; `ended` resolves when the server ends the stream. */
  async listen(token: string): Promise<{ readonly ended: Promise<void> }> {
    const { body } = await server.request("/mcp", token, {
      headers: { accept: "text/event-stream", "mcp-session-id": this.id },
    });
    const read = async () => {
      for await (const part of body!) this.heard.push(Buffer.from(part).toString());
    };
    return { ended: read() };
  }

  hears(uri: string): number {
    return this.heard.join("").split(JSON.stringify(uri)).length - 1;
  }
}

/** Changes the topic. */
const register = async (token: string) => {
  const response = await server.request(`/runtime/v1/workers/worker-${randomUUID()}/events`, token, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ events: [{ event_id: randomUUID(), type: "worker.registered", data: {} }] }),
  });
  expect(response.status).toBe(201);
};

const revoke = async (what: object) => {
  const operator = await server.token({ org_id: ADA.org_id, sub: "olga", scopes: ["ops"] });
  const response = await server.request("/api/sync/revoke", operator, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(what),
  });
  expect(response.status).toBe(204);
};

test("a stream ends when the token that opened it is revoked, whichever token the session used last", async () => {
  const token = await server.token(ADA);
  const session = await Session.open(token);
  const { ended } = await session.listen(token);
  const other = await server.token(ADA);
  await session.ask(other, "ping");
  await revoke({ jti: JSON.parse(Buffer.from(token.split(".")[1]!, "base64url").toString()).jti });
  await ended;
  expect(await session.ask(other, "ping")).toMatchObject({ result: {} });
});

test("a token with fewer rights ends what it may not watch, and leaves the rest", async () => {
  const token = await server.token({ ...ADA, scopes: [...ADA.scopes, TOPIC] });
  const session = await Session.open(token);
  await session.listen(token);
  const conv_id = `mcp-${randomUUID()}`;
  await session.call(token, "send_message", { conv_id, message: "Hello" });
  const [topic, conversation] = [`khala://topics/${TOPIC}`, `khala://conversations/${conv_id}`];
  for (const uri of [topic, conversation])
    expect(await session.ask(token, "resources/subscribe", { uri })).toMatchObject({ result: {} });
  await session.ask(await server.token({ ...ADA, scopes: ["chat"] }), "ping");
  // Told once more, so that the client reads it again and learns why.
  await eventually("the end of the topic", async () => session.hears(topic) > 0);
  const ofTopic = session.hears(topic);
  await register(token);
  const ofConversation = session.hears(conversation);
  await session.call(token, "send_message", { conv_id, message: "Again" });
  await eventually("the conversation", async () => session.hears(conversation) > ofConversation);
  expect(session.hears(topic)).toBe(ofTopic);

  const greater = await server.token({ ...ADA, scopes: [TOPIC, "runtime:write"] });
  expect(await session.ask(greater, "resources/subscribe", { uri: topic })).toMatchObject({ result: {} });
  /** Notifications arrive in their order: all before it are here then. */
  const nextOfTopic = async () => {
    const before = session.hears(topic);
    await register(greater);
    await eventually("the topic", async () => session.hears(topic) > before);
  };
  await nextOfTopic();
  const heard = session.hears(conversation);
  const chat = await server.request("/chat", token, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ conv_id, message: "And again", policy: "queue" }),
  });
  expect(chat.status).toBe(202);
  await eventually("the answer", async () => {
    const state = await (await server.request(`/chat/${conv_id}`, token)).json();
    return !(state as { run: object | null }).run;
  });
  await nextOfTopic();
  await nextOfTopic();
  expect(session.hears(conversation)).toBe(heard);
});

test("the tools of a name such as `.` reach no other route than their own", async () => {
  const token = await server.token(ADA);
  const session = await Session.open(token);
  await session.call(token, "publish_artifact", { type: "Bad", payload: {} });
  const letters = async () => {
    const { result } = await session.call(token, "list_dead_letters", { agent: "failing" });
    return (result as unknown as { structuredContent: { dead_letters: { replayed_at?: string }[] } })
      .structuredContent.dead_letters;
  };
  await eventually("a dead letter", async () => (await letters()).length > 0);
  for (const [name, args] of [
    ["replay_dead_letter", { agent: "failing", id: "." }],
    ["replay_dead_letter", { agent: "failing", id: ".." }],
    ["get_dead_letter", { agent: "failing", id: "." }],
    ["get_conversation", { conv_id: ".." }],
    ["get_document", { doc_key: ".." }],
    ["list_topic", { collection: "." }],
  ] as const)
    expect((await session.call(token, name, args)).result, `${name} ${JSON.stringify(args)}`).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining("not_found") }],
    });
  for (const uri of ["khala://conversations/..", "khala://documents/.", "khala://topics/.."])
    expect(await session.ask(token, "resources/read", { uri })).toMatchObject({
      error: { message: expect.stringContaining("not found") },
    });
  expect((await letters()).filter(({ replayed_at }) => replayed_at)).toEqual([]);
});
