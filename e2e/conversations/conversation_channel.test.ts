import { RawClient, until } from "@khala/test-support/clients/clients";
import {
  answerOf,
  openPhoenix,
  PHOENIX_CLIENTS,
  type PhoenixChannel,
  type PhoenixClient,
} from "@khala/test-support/clients/phoenix";
import { type TimelineJson, TimelineView } from "@khala/test-support/clients/timeline_view";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

let database: TestDatabase;
let server: ConversationServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startConversations(database.url);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

let conversations = 0;
const newConv = () => `conv-${++conversations}`;

async function connected(client: PhoenixClient, claims = {}) {
  const params = { token: await server.token(claims) };
  const socket = await openPhoenix(client, server.socketUrl, { params, rejoinAfterMs: () => 20 });
  socket.connect();
  await until("a connection", () => socket.isConnected());
  return { socket, [Symbol.dispose]: () => socket.disconnect() };
}

/** Everything that arrives as `frame`, and what it comes to. */
function followed(channel: PhoenixChannel) {
  const frames: TimelineJson[] = [];
  const view = new TimelineView();
  channel.on("frame", (payload) => {
    frames.push(payload as TimelineJson);
    view.apply(payload as TimelineJson);
  });
  const ended = (runId: string) =>
    until("the end of the run", () => {
      const ends = ({ event, run_id }: TimelineJson) =>
        run_id === runId && (event?.run_finished || event?.run_failed || event?.run_stopped);
      return frames.find(ends);
    });
  return { frames, view, ended };
}

describe.each(PHOENIX_CLIENTS)("the npm client $version", (client) => {
  test("joins, sends a message, and gets the answer as it is made", async () => {
    const convId = newConv();
    using it = await connected(client);
    const channel = it.socket.channel(`conversation:${convId}`);
    const { frames, view, ended } = followed(channel);
    expect(await answerOf(channel.join())).toEqual({ status: "ok", response: {} });
    const { status, response } = await answerOf<{ run_id: string }>(
      channel.push("chat", { message: "hello" }),
    );
    expect({ status, response }).toEqual({
      status: "ok",
      response: {
        conv_id: convId,
        run_id: expect.any(String),
        message_id: expect.any(String),
        cursor: expect.any(String),
      },
    });
    const performance = await server.engine.turn(response.run_id);
    performance.say("wör", "ld");
    performance.finish();
    await ended(response.run_id);
    expect(frames[0]).toMatchObject({ type: "hello", conv_id: convId });
    expect([...view.texts.values()]).toEqual(["hello", "wörld"]);
    expect(view.wrong).toEqual([]);
    expect(await answerOf(channel.push("state", {}))).toMatchObject({
      status: "ok",
      response: { conv_id: convId, messages: [{ role: "user" }, { role: "assistant", status: "done" }] },
    });
  });

  test("gets the error of a refused join, and stops retrying", async () => {
    const convId = newConv();
    await server.chat(convId, "mine").then(async ({ run_id }) => (await server.engine.turn(run_id)).finish());
    using stranger = await connected(client, { sub: "somebody-else" });
    using reader = await connected(client, { scopes: ["ops"] });
    using it = await connected(client);
    for (const [{ socket }, topic, params, error] of [
      [stranger, `conversation:${convId}`, {}, { code: "not_found" }],
      [reader, `conversation:${convId}`, {}, { code: "missing_scope" }],
      [it, "conversation:a:b", {}, { code: "invalid_request", field: "conv_id" }],
      [it, `conversation:${convId}`, { after: "x" }, { code: "invalid_request", field: "after" }],
      [it, `conversation:${convId}`, { replay: 1_001 }, { code: "invalid_request", field: "replay" }],
    ] as const) {
      const channel = socket.channel(topic, params);
      const { frames } = followed(channel);
      expect(await answerOf(channel.join())).toMatchObject({ status: "error", response: { error } });
      await until("the channel's end", () => channel.state === "closed");
      expect(frames).toEqual([]);
    }
  });

  test("rejoins from its cursor after a disconnect, and has all of the answer once", async () => {
    const convId = newConv();
    using it = await connected(client);
    let cursor: string | undefined;
    const channel = it.socket.channel(`conversation:${convId}`, () => ({ ...(cursor && { after: cursor }) }));
    const { frames, view, ended } = followed(channel);
    channel.on("frame", () => {
      cursor = view.cursor;
    });
    await answerOf(channel.join());
    const { response } = await answerOf<{ run_id: string }>(channel.push("chat", { message: "go on" }));
    const performance = await server.engine.turn(response.run_id);
    performance.say("one ");
    await until("text", () => frames.some(({ event }) => event?.text_delta));
    it.socket.conn!.close();
    performance.say("two ");
    await until("a second hello", () => frames.filter(({ type }) => type === "hello").length === 2);
    performance.say("three");
    performance.finish();
    await ended(response.run_id);
    expect(view.wrong).toEqual([]);
    expect(view.texts.get(performance.turn.messageId)).toBe("one two three");
  });
});

const [, , CLIENT] = PHOENIX_CLIENTS;

test("replies to the join before the first frame, and to pushes sent meanwhile after it", async () => {
  const convId = newConv();
  await server.chat(convId, "hi").then(async ({ run_id }) => (await server.engine.turn(run_id)).finish());
  await server.settled(convId);
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  const topic = `conversation:${convId}`;
  raw.cast(topic, "phx_join", { replay: 10 });
  const asked = raw.cast(topic, "state", {});
  await until("the answer", () => raw.received.some(({ ref }) => ref === asked), { on: raw });
  const came = raw.received.map(({ event, payload }) =>
    event === "frame" ? (payload as TimelineJson).type : event,
  );
  expect(came).toEqual(["phx_reply", "hello", "snapshot", "phx_reply"]);
});

test("sends the same frames as /ws, byte for byte", async () => {
  const convId = newConv();
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  await using plain = await server.connect(convId);
  await plain.first("hello");
  await raw.push(`conversation:${convId}`, "phx_join");
  const { run_id } = await server.chat(convId, "hi");
  const performance = await server.engine.turn(run_id);
  performance.say("söme", " text");
  performance.finish();
  await plain.runEnded(run_id);
  const events = await until(
    "the same number",
    () => {
      const texts = raw.received.filter(({ event }) => event === "frame").map(({ raw }) => String(raw));
      const mine = texts.filter((text) => text.includes('"type":"event"'));
      return mine.length === plain.events.length && mine;
    },
    { on: raw },
  );
  expect(events).toEqual(plain.events.map((json) => `[null,null,"conversation:${convId}","frame",${json}]`));
});

test("stop on the channel ends a run started over HTTP", async () => {
  const convId = newConv();
  using it = await connected(CLIENT);
  const channel = it.socket.channel(`conversation:${convId}`);
  const { ended } = followed(channel);
  await answerOf(channel.join());
  const { run_id } = await server.chat(convId, "go on");
  await server.engine.turn(run_id);
  expect(await answerOf(channel.push("stop", {}))).toMatchObject({
    status: "ok",
    response: { run_id, stopped: true },
  });
  expect((await ended(run_id)).event).toHaveProperty("run_stopped");
});

test("a wrong push gets an error, and the channel continues", async () => {
  using it = await connected(CLIENT);
  const channel = it.socket.channel(`conversation:${newConv()}`);
  await answerOf(channel.join());
  for (const [event, payload, error] of [
    ["chat", {}, { code: "invalid_request", field: "message" }],
    ["chat", { message: "m", policy: "never" }, { code: "invalid_request", field: "policy" }],
    ["dance", {}, { code: "invalid_request" }],
    ["state", {}, undefined],
  ] as const) {
    const { status, response } = await answerOf(channel.push(event, payload));
    expect({ status, response }).toMatchObject(
      error ? { status: "error", response: { error } } : { status: "ok" },
    );
  }
});

test("a left channel gets nothing more, and the socket's other channels continue", async () => {
  using it = await connected(CLIENT);
  const [left, stays] = [newConv(), newConv()];
  const first = it.socket.channel(`conversation:${left}`);
  const second = it.socket.channel(`conversation:${stays}`);
  const heard = followed(first);
  const { ended } = followed(second);
  await answerOf(first.join());
  await answerOf(second.join());
  await until("hello", () => heard.frames.length === 1);
  expect(await answerOf(first.leave())).toMatchObject({ status: "ok" });
  for (const convId of [left, stays]) {
    const { run_id } = await server.chat(convId, "hi");
    (await server.engine.turn(run_id)).finish();
    if (convId === stays) await ended(run_id);
  }
  expect(heard.frames).toHaveLength(1);
});

test("deleting a conversation closes its channel and keeps the socket open", async () => {
  const convId = newConv();
  using it = await connected(CLIENT);
  const channel = it.socket.channel(`conversation:${convId}`);
  const { frames } = followed(channel);
  await answerOf(channel.join());
  await server.request(`/chat/${convId}`, { method: "DELETE" });
  await until("the channel's end", () => channel.state === "closed");
  expect(frames.map(({ type }) => type)).toEqual(["hello", "resync", "error"]);
  expect(it.socket.isConnected()).toBe(true);
});

test("a token refreshed without the scope closes the channel at the next frame", async () => {
  const convId = newConv();
  using it = await connected(CLIENT);
  const channel = it.socket.channel(`conversation:${convId}`);
  const { frames } = followed(channel);
  await answerOf(channel.join());
  const token = await server.token({ scopes: ["ops"] });
  expect(await answerOf(channel.push("auth", { token }))).toMatchObject({
    status: "ok",
    response: { expires_at: expect.any(String) },
  });
  const { run_id } = await server.chat(convId, "secret");
  (await server.engine.turn(run_id)).finish();
  await until("the channel's end", () => channel.state === "closed");
  expect(frames.map(({ type, code }) => code ?? type)).toEqual(["hello", "missing_scope"]);
});

test("a token refreshed without chat:service closes the channel of another subject's conversation, from any channel", async () => {
  const convId = newConv();
  await server.chat(convId, "mine");
  using it = await connected(CLIENT, { sub: "support", scopes: ["chat", "chat:service"] });
  const theirs = it.socket.channel(`conversation:${convId}`);
  const own = it.socket.channel(`conversation:${newConv()}`);
  const { frames } = followed(theirs);
  for (const channel of [theirs, own]) await answerOf(channel.join());
  const token = await server.token({ sub: "support", scopes: ["chat"] });
  expect(await answerOf(own.push("auth", { token }))).toMatchObject({ status: "ok" });
  await until("the channel's end", () => theirs.state === "closed");
  expect(frames.at(-1)).toMatchObject({ type: "error", code: "not_found" });
  expect(own.state).toBe("joined");
});
