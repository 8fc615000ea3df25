import { CONV_ID, phoenix, topicForConv } from "@khala/contracts";
import { Refused } from "@khala/test-support/clients/clients";
import { TimelineSocket } from "@khala/test-support/clients/timeline_socket";
import { seqOf } from "@khala/test-support/clients/timeline_view";
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

/** A run from question to end, with an answer of these pieces. */
async function answered(convId: string, question: string, ...pieces: readonly string[]) {
  const started = await server.chat(convId, question);
  const performance = await server.engine.turn(started.run_id);
  performance.say(...pieces);
  performance.finish();
  expect(await server.settled(convId)).toBe("finished");
  return started;
}

test.each(["/ws?conv_id=in-the-subprotocol", "/ai/ws"])(
  "%s accepts the token as a subprotocol, so that it is in no URL",
  async (path) => {
    const token = await server.token();
    const socket = new WebSocket(server.url.replace("http", "ws") + path, phoenix.tokenProtocols(token));
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = reject;
    });
    expect(socket.protocol).toBe("phoenix");
    socket.close();
  },
);

describe("the start of a socket", () => {
  test("the first connect has no replay: hello, then new events", async () => {
    const convId = newConv();
    await answered(convId, "before", "not repeated");
    await using client = await server.connect(convId);
    const hello = await client.first("hello");
    expect(hello).toMatchObject({ conv_id: convId, cursor: expect.any(String) });
    const { run_id } = await answered(convId, "now", "live");
    await client.runEnded(run_id);
    expect(client.types[0]).toBe("hello");
    expect(client.types.slice(1).every((type) => type === "event")).toBe(true);
    expect([...client.view.texts.values()]).toEqual(["now", "live"]);
    expect(client.view.wrong).toEqual([]);
  });

  test("a new conversation gets hello without a run", async () => {
    await using client = await server.connect(newConv());
    expect(await client.first("hello")).toMatchObject({ run: null });
    expect(client.types).toEqual(["hello"]);
  });

  test("after=<cursor> replays everything since, then live events", async () => {
    const convId = newConv();
    const { cursor } = await answered(convId, "one", "first ", "answer");
    await answered(convId, "two", "second answer");
    await using client = await server.connect(convId, { after: cursor });
    expect(await client.first("hello")).toMatchObject({ cursor });
    const { run_id } = await answered(convId, "three", "third answer");
    await client.runEnded(run_id);
    expect(client.types).not.toContain("snapshot");
    expect(client.view.wrong).toEqual([]);
    expect(client.view.texts).toEqual(await server.texts(convId));
    expect(client.view.cursor).toBe((await server.state(convId)).cursor);
  });

  test("the cursor of the last frame replays nothing", async () => {
    const convId = newConv();
    const { cursor } = await answered(convId, "one", "answer");
    await using first = await server.connect(convId, { after: cursor });
    await first.frame("the end", ({ event }) => event?.run_finished);
    await using second = await server.connect(convId, { after: first.view.cursor! });
    await second.first("hello");
    const { run_id } = await answered(convId, "two", "more");
    await second.runEnded(run_id);
    expect([...second.view.texts.values()]).toEqual(["two", "more"]);
    expect(second.view.wrong).toEqual([]);
  });

  test("replay=<n> gives a snapshot of the last n messages, each in one piece, then live events", async () => {
    const convId = newConv();
    await answered(convId, "one", "first ", "answer");
    await answered(convId, "two", "second ", "answer");
    await using client = await server.connect(convId, { replay: "3" });
    const { messages } = await client.first("snapshot");
    expect(messages).toMatchObject([
      { role: "assistant", status: "done", parts: [{ text: "first answer" }] },
      { role: "user", status: "done", parts: [{ text: "two" }] },
      { role: "assistant", status: "done", parts: [{ text: "second answer" }] },
    ]);
    expect(client.types).toEqual(["hello", "snapshot"]);
    const { run_id } = await answered(convId, "three", "third");
    await client.runEnded(run_id);
    expect(client.view.wrong).toEqual([]);
  });

  test("a cursor whose next entry was trimmed gets resync and a snapshot", async () => {
    const convId = newConv();
    const { cursor } = await answered(convId, "one", "first answer");
    await answered(convId, "two", "second answer");
    // A server that has not read them: in memory they would still be there.
    await using other = await startConversations(database.url);
    await server.log.trim(topicForConv(convId), { entries: 3 });
    await using client = await other.connect(convId, { after: cursor });
    const resync = await client.first("resync");
    expect(resync.reason).toBe("trimmed");
    await client.first("snapshot");
    expect(client.types).toEqual(["hello", "resync", "snapshot"]);
    expect([...client.view.texts.values()]).toEqual(["one", "first answer", "two", "second answer"]);
  });

  test("a cursor beyond the end, or of a deleted conversation, gets resync and a snapshot", async () => {
    const convId = newConv();
    const { cursor } = await answered(convId, "one", "answer");
    const seq = seqOf(cursor);
    const beyond = cursor.replace(new RegExp(`-${seq}$`), `-${seq + 1_000n}`);
    await using foreign = await server.connect(convId, { after: beyond });
    expect(await foreign.first("resync")).toMatchObject({
      reason: "foreign_cursor",
    });
    await foreign.first("snapshot");
    expect(foreign.view.texts).toEqual(await server.texts(convId));

    await server.request(`/chat/${convId}`, { method: "DELETE" });
    // A server that never read it: here the deletion may still be on its way.
    await using other = await startConversations(database.url);
    await using late = await other.connect(convId, { after: cursor });
    expect(await late.first("resync")).toMatchObject({ reason: "deleted" });
    const { messages } = await late.first("snapshot");
    expect(messages).toEqual([]);
  });
});

describe("many sockets of one conversation", () => {
  test("get the same bytes for the same event", async () => {
    const convId = newConv();
    await using first = await server.connect(convId);
    await using second = await server.connect(convId);
    await Promise.all([first.first("hello"), second.first("hello")]);
    const { run_id } = await answered(convId, "hi", "söme ", "text", " ✓");
    await Promise.all([first.runEnded(run_id), second.runEnded(run_id)]);
    expect(first.events.length).toBeGreaterThan(3);
    expect(second.events).toEqual(first.events);
    // And who reads it later gets them as well.
    await using third = await server.connect(convId, { after: (await first.first("hello")).cursor! });
    await third.runEnded(run_id);
    expect(third.events).toEqual(first.events);
  });

  test("a run started on another server reaches an idle tab", async () => {
    const convId = newConv();
    await using idle = await server.connect(convId);
    await idle.first("hello");
    await using other = await startConversations(database.url);
    const { run_id } = await other.chat(convId, "from another server");
    const started = await idle.frame("a run notice", ({ event }) => event?.run_started);
    expect(started.run_id).toBe(run_id);
    (await other.engine.turn(run_id)).finish();
    await idle.runEnded(run_id);
    expect(idle.view.wrong).toEqual([]);
  });

  test("a socket opened during a run gets hello with the run, the text so far, then the rest", async () => {
    const convId = newConv();
    await answered(convId, "before", "not repeated");
    const { run_id } = await server.chat(convId, "now");
    const performance = await server.engine.turn(run_id);
    // A socket from before the first word receives each as an event: then all of it is in the log, and the run goes on.
    await using early = await server.connect(convId, { replay: "1" });
    await early.first("snapshot");
    performance.say("half ", "of ");
    await early.frame("half", ({ event }) => event?.text_delta?.text?.includes("of"));
    await using client = await server.connect(convId);
    const snapshot = await client.first("snapshot");
    performance.say("it");
    performance.finish();
    await client.runEnded(run_id);
    expect(client.types.slice(0, 3)).toEqual(["hello", "snapshot", "event"]);
    expect(client.frames[0]!.run).toMatchObject({ run_id, status: "running" });
    expect(snapshot.messages).toMatchObject([
      { role: "user", parts: [{ text: "now" }] },
      { role: "assistant", run_id, status: "streaming", parts: [{ text: "half of " }] },
    ]);
    expect([...client.view.texts.values()]).toEqual(["now", "half of it"]);
    expect(client.view.wrong).toEqual([]);
  });

  test("attaching at any moment of a run leaves no gap and no duplicate", async () => {
    const random = server.context.random;
    const convId = newConv();
    const { run_id, cursor } = await server.chat(convId, "tell me a long story");
    const performance = await server.engine.turn(run_id);
    const clients = [];
    const said: string[] = [];
    for (let i = 0; i < 60; i++) {
      for (let j = Math.floor(random() * 12); j > 0; j--) {
        const piece = `${said.length}:${"x".repeat(Math.floor(random() * 90))} `;
        said.push(piece);
        performance.say(piece);
      }
      const start = [{}, { after: cursor }, { replay: "10" }][Math.floor(random() * 3)]!;
      clients.push(server.connect(convId, start));
      if (random() < 0.6) await clients.at(-1);
    }
    for (const client of await Promise.all(clients)) await client.first("hello");
    // These come while the run ends.
    for (let i = 0; i < 20; i++) clients.push(server.connect(convId, { after: cursor }));
    performance.finish();
    const attached = await Promise.all(clients);
    for (const client of attached) {
      await client.runEnded(run_id);
      expect(client.view.wrong).toEqual([]);
      expect(client.types[0]).toBe("hello");
      expect(client.view.texts.get(performance.turn.messageId)).toBe(said.join(""));
    }
    const texts = await server.texts(convId);
    expect(texts.get(performance.turn.messageId)).toBe(said.join(""));
    await Promise.all(attached.map((client) => client[Symbol.asyncDispose]()));
  });
});

describe("runs and sockets", () => {
  test("a run continues without sockets, and is complete for a later one", async () => {
    const convId = newConv();
    const client = await server.connect(convId);
    await client.first("hello");
    const { run_id } = await server.chat(convId, "go on");
    const performance = await server.engine.turn(run_id);
    performance.say("one ");
    await client.frame("text", ({ event }) => event?.text_delta);
    await client[Symbol.asyncDispose]();
    performance.say("two ", "three");
    performance.finish();
    await using back = await server.connect(convId, { after: client.view.cursor! });
    await back.runEnded(run_id);
    expect(back.view.wrong).toEqual([]);
    expect(client.view.texts.get(performance.turn.messageId)).toBe("one ");
    expect(back.view.texts.get(performance.turn.messageId)).toBe("two three");
  });

  test("a stop from another device ends the run on every socket", async () => {
    const convId = newConv();
    await using laptop = await server.connect(convId);
    await using phone = await server.connect(convId);
    await Promise.all([laptop.first("hello"), phone.first("hello")]);
    const { run_id } = await server.chat(convId, "go on");
    const performance = await server.engine.turn(run_id);
    performance.say("half of");
    await phone.frame("text", ({ event }) => event?.text_delta);
    const response = await server.request(`/chat/${convId}/stop`, { method: "POST" });
    expect(await response.json()).toMatchObject({ run_id, stopped: true });
    for (const client of [laptop, phone])
      expect((await client.runEnded(run_id)).event).toHaveProperty("run_stopped");
    expect(performance.signal.aborted).toBe(true);
  });

  test("deleting the conversation notifies its sockets, and closes them for good", async () => {
    const convId = newConv();
    await answered(convId, "hi", "there");
    await using client = await server.connect(convId);
    await client.first("hello");
    expect((await server.request(`/chat/${convId}`, { method: "DELETE" })).status).toBe(204);
    expect(await client.ended()).toEqual({ code: 4404, reason: "not_found" });
    expect(client.types).toEqual(["hello", "resync", "error"]);
  });
});

describe("access", () => {
  test("another subject gets not_found, and another org has an empty conversation of its own", async () => {
    const convId = newConv();
    await answered(convId, "mine", "secret");
    await using stranger = await server.connect(convId, {}, await server.token({ sub: "somebody-else" }));
    expect(await stranger.ended()).toEqual({ code: 4404, reason: "not_found" });
    expect(stranger.types).toEqual(["error"]);
    expect(stranger.frames[0]).toMatchObject({ code: "not_found" });
    const tenant = await server.token({ org_id: "another-org" });
    await using other = await server.connect(convId, { replay: "10" }, tenant);
    expect(await other.first("snapshot")).toMatchObject({ messages: [] });
  });

  test("a token refreshed without chat:service closes the socket of another subject's conversation", async () => {
    const convId = newConv();
    await answered(convId, "mine", "secret");
    const service = await server.token({ sub: "support", scopes: ["chat", "chat:service"] });
    await using support = await server.connect(convId, {}, service);
    await support.first("hello");
    const token = await server.token({ sub: "support", scopes: ["chat"] });
    support.send(JSON.stringify({ type: "auth", token }));
    expect(await support.ended()).toEqual({ code: 4404, reason: "not_found" });
  });

  test("refuses a handshake without the scope", async () => {
    const token = await server.token({ scopes: ["runtime:write"] });
    await expect(server.connect(newConv(), {}, token)).rejects.toMatchObject({
      status: 403,
      body: { error: { code: "missing_scope" } },
    });
  });

  test("accepts a token in the Authorization header", async () => {
    const headers = { authorization: `Bearer ${await server.token()}` };
    await using client = await TimelineSocket.connect(server.wsUrl, { conv_id: newConv() }, headers);
    await client.first("hello");
  });

  test.each([
    ["no conv_id", {}, "conv_id"],
    ["a conv_id with a colon", { conv_id: "a:b" }, "conv_id"],
    ["a conv_id that is too long", { conv_id: "a".repeat(129) }, "conv_id"],
    ["a cursor that is none", { conv_id: "a", after: "12" }, "after"],
    ["an empty cursor", { conv_id: "a", after: "" }, "after"],
    ["replay=0", { conv_id: "a", replay: "0" }, "replay"],
    ["replay=1001", { conv_id: "a", replay: "1001" }, "replay"],
    ["replay=1.5", { conv_id: "a", replay: "1.5" }, "replay"],
    ["both after and replay", { conv_id: "a", replay: "1", after: "e.1-1" }, "replay"],
  ])("%s is a 400 that names the field", async (_, params: Record<string, string>, field) => {
    const token = await server.token();
    const refused = await TimelineSocket.connect(server.wsUrl, { ...params, token }).catch((error) => error);
    expect(refused).toBeInstanceOf(Refused);
    expect(refused).toMatchObject({ status: 400, body: { error: { code: "invalid_request", field } } });
  });

  test("conv_id allows only characters that are safe in URLs and keys", () => {
    for (const good of ["a", "conv-1755812270387-e3pkgm", "A.b_c~d-9", "0"]) expect(good).toMatch(CONV_ID);
    for (const bad of ["", "-a", "a/b", "a b", "é", "{a}", "a\n"]) expect(bad).not.toMatch(CONV_ID);
  });
});
