import { topicForConv } from "@khala/contracts";
import { RawClient, until } from "@khala/test-support/clients/clients";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CLOSE_GRACE_MS } from "../../packages/server/src/gateway/sockets/connection.ts";

const clock = new JumpClock({ leapOnlyMs: CLOSE_GRACE_MS });
let database: TestDatabase;
let server: ConversationServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startConversations(database.url, { clock });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

let conversations = 0;
const newConv = () => `conv-${++conversations}`;

test("answers ping with pong, and an unknown message with an error", async () => {
  await using client = await server.connect(newConv());
  await client.first("hello");
  client.send({ type: "ping" });
  await client.first("pong");
  for (const wrong of ["{", "null", "[]", '"ping"', '{"type":"chat"}', '{"type":"auth"}']) client.send(wrong);
  client.ws.send(Buffer.from('{"type":"ping"}'), { binary: true });
  await until("all errors", () => client.frames.length === 9, { on: client });
  expect(client.types.slice(2)).toEqual(Array(7).fill("error"));
  expect(client.frames.at(-1)).toMatchObject({ code: "invalid_request" });
  expect(client.closed).toBeUndefined();
});

test("a token that expires closes the socket, unless a new one of the same subject arrived in time", async () => {
  await using lapsed = await server.connect(newConv(), {}, await server.token({ ttl_s: 60 }));
  await using renewed = await server.connect(newConv(), {}, await server.token({ ttl_s: 60 }));
  await Promise.all([lapsed.first("hello"), renewed.first("hello")]);
  renewed.send({ type: "auth", token: await server.token({ sub: "somebody-else", ttl_s: 300 }) });
  await renewed.frame("a refusal", ({ code }) => code === "subject_mismatch");
  renewed.send({ type: "auth", token: await server.token({ scopes: ["ops"], ttl_s: 300 }) });
  await renewed.frame("another refusal", ({ code }) => code === "missing_scope");
  renewed.send({ type: "auth", token: await server.token({ ttl_s: 300 }) });
  const { expires_at } = await renewed.first("authenticated");
  expect(Date.parse(expires_at!)).toBeGreaterThan(clock.now() + 200_000);
  clock.jump(61_000);
  expect(await lapsed.ended()).toEqual({ code: 4401, reason: "token_expired" });
  expect(lapsed.frames.at(-1)).toMatchObject({ type: "error", code: "token_expired" });
  renewed.send({ type: "ping" });
  await renewed.first("pong");
});

test("a revoked token closes the socket", async () => {
  const token = await server.token();
  await using client = await server.connect(newConv(), {}, token);
  await client.first("hello");
  await server.revoke(token);
  expect(await client.ended()).toEqual({ code: 4401, reason: "token_revoked" });
});

test("a client that only listens stays connected and gets heartbeats with its cursor", async () => {
  await using client = await server.connect(newConv(), {}, await server.token({ ttl_s: 900 }));
  const { cursor } = await client.first("hello");
  for (let i = 0; i < 8; i++) {
    const before = client.frames.length;
    const pinged = new Promise((resolve) => client.ws.once("ping", resolve));
    clock.jump(16_000);
    await pinged;
    await until("a heartbeat", () => client.frames.length > before, { on: client });
  }
  expect(client.frames.at(-1)).toEqual({ type: "heartbeat", cursor });
  expect(client.closed).toBeUndefined();
});

test("a server that stops closes sockets with 1012", async () => {
  await using other = await startConversations(database.url);
  await using client = await other.connect(newConv());
  await client.first("hello");
  await other[Symbol.asyncDispose]();
  expect(await client.ended()).toEqual({ code: 1012, reason: "shutting_down" });
  expect(client.frames.at(-1)).toMatchObject({ type: "error", code: "shutting_down" });
});

test("a socket that reads too slowly is closed with 1013 without delaying others, and resumes", async () => {
  const convId = newConv();
  await using fast = await server.connect(convId);
  await using slow = await server.connect(convId);
  await Promise.all([fast.first("hello"), slow.first("hello")]);
  slow.ws.pause();
  const count = await floodUntilClosed(convId, (sent) =>
    until("it at the other client", () => fast.events.length === sent, { on: fast }),
  );
  expect(fast.view.wrong).toEqual([]);
  slow.ws.resume();
  expect(await slow.ended()).toEqual({ code: 1013, reason: "slow_consumer" });
  expect(slow.frames.at(-1)).toMatchObject({ type: "error", code: "slow_consumer" });
  expect(slow.events.length).toBeLessThan(count);

  await using resumed = await server.connect(convId, { after: slow.view.cursor! });
  await until("the rest", () => slow.events.length + resumed.events.length === count, { on: resumed });
  expect([...slow.events, ...resumed.events]).toEqual(fast.events);
});

test("a Phoenix socket that reads too slowly is closed with 1013 too", async () => {
  const convId = newConv();
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  await raw.push(`conversation:${convId}`, "phx_join");
  raw.ws.pause();
  await floodUntilClosed(convId);
  raw.ws.resume();
  expect(await raw.ended()).toEqual({ code: 1013, reason: "slow_consumer" });
});

test("clients that disconnect before they are attached leave nothing behind", async () => {
  const token = await server.token();
  const convId = newConv();
  const come = async (i: number) => {
    if (i % 2) {
      const client = await server.connect(convId, { replay: "5" }, token);
      return client.ws.terminate();
    }
    const raw = await RawClient.connect(server.socketUrl, { token });
    raw.cast(`conversation:${convId}`, "phx_join");
    if (i % 4) raw.cast(`conversation:${convId}`, "phx_leave");
    else raw.cast(`conversation:${convId}`, "phx_join");
    raw.ws.close();
    await raw.ended();
  };
  await Promise.all(Array.from({ length: 40 }, (_, i) => come(i)));
  const sockets = () => server.metric("khala_gateway_sockets");
  await until("no socket", async () => (await sockets()) === 0);
  await until("none attached", async () => (await server.metric("khala_conversation_sockets")) === 0);
});

/** Fills what the server and the system buffer for a connection until one is closed for it; how many entries that took. */
async function floodUntilClosed(convId: string, sent?: (count: number) => Promise<unknown>): Promise<number> {
  const closes = () => server.metric("khala_conversation_slow_closes_total");
  const before = await closes();
  const event = { text_delta: { message_id: "m", text: "x".repeat(200_000) } };
  const entry = JSON.stringify({ run_id: "", event });
  let count = 0;
  while (count < 120) {
    await server.log.append(topicForConv(convId), [entry]);
    count++;
    await sent?.(count);
    const closed = (await closes()) - before;
    if (closed === 0) continue;
    expect(closed).toBe(1);
    return count;
  }
  throw new Error("24 MB were not too much for a socket that nobody reads.");
}
