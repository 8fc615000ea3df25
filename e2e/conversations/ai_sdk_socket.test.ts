import { once } from "node:events";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { newConv, onStage } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";

let database: TestDatabase;
let server: ConversationServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startConversations(database.url, { settings: { KHALA_SOCKET_BUFFER_BYTES: "65536" } });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

/** The runs of a conversation. */
async function status(convId: string) {
  const rows = await database.database.query<{ run_id: string; status: string; stop: string | null }>({
    text: "SELECT run_id, status, stop_requested AS stop FROM runtime.conversation_runs WHERE conv_id = $1",
    values: [convId],
  });
  return { rows };
}

interface Frame {
  readonly type: string;
  readonly requestId: string;
  readonly sequence?: number;
  readonly chunk?: { readonly type: string; readonly delta?: string };
  readonly errorText?: string;
}

/** A socket that speaks the protocol by hand. */
async function connect(token?: string, more = "") {
  const bearer = token ?? (await server.token());
  const ws = new WebSocket(`${server.url.replace("http", "ws")}/ai/ws?token=${bearer}${more}`);
  const frames: Frame[] = [];
  let closed: { code: number; reason: string } | undefined;
  ws.on("message", (data) => frames.push(JSON.parse(String(data)) as Frame));
  ws.on("close", (code, reason) => {
    closed = { code, reason: String(reason) };
  });
  await once(ws, "open");
  return {
    ws,
    frames,
    say: (frame: unknown) => ws.send(JSON.stringify(frame)),
    of: (requestId: string) => frames.filter((frame) => frame.requestId === requestId),
    closed: () => until("the close", () => closed),
    ended: (requestId: string) =>
      until("the end of an answer", () => frames.some((f) => f.requestId === requestId && f.type === "end")),
    [Symbol.dispose]: () => ws.terminate(),
  };
}

const send = (requestId: string, id: string, text = "Hello?") => ({
  type: "send",
  requestId,
  id,
  trigger: "submit-message",
  messages: [{ id: `${requestId}-message`, role: "user", parts: [{ type: "text", text }] }],
  headers: {},
  body: {},
});

test("answers share a socket, each with its own id and sequence from 0", async () => {
  using socket = await connect();
  const conversations = [newConv(), newConv()];
  socket.say(send("a", conversations[0]!));
  socket.say(send("b", conversations[1]!));
  const [a, b] = await Promise.all(conversations.map((id) => onStage(server, id)));
  a!.say("1");
  b!.say("1");
  await until("both answers", () => socket.of("a").length > 3 && socket.of("b").length > 3);
  a!.say("2");
  a!.finish();
  b!.finish();
  await Promise.all([socket.ended("a"), socket.ended("b")]);
  for (const id of ["a", "b"]) {
    const frames = socket.of(id);
    expect(frames[0]).toEqual({ requestId: id, type: "start" });
    expect(frames.at(-1)).toEqual({ requestId: id, type: "end" });
    const sequences = frames.slice(1, -1).map(({ sequence }) => sequence);
    expect(sequences).toEqual(sequences.map((_, i) => i));
  }
});

test("a resume starts at 0 again, and a resume from a sequence is refused", async () => {
  using socket = await connect();
  const id = newConv();
  socket.say(send("a", id));
  const performance = await onStage(server, id);
  performance.say("Hello");
  await until("the text", () => socket.frames.some(({ chunk }) => chunk?.delta === "Hello"));
  socket.say({ type: "resume", requestId: "b", id, headers: {}, body: {} });
  socket.say({ type: "resume", requestId: "c", id, lastSequence: 3, headers: {}, body: {} });
  await until("both", () => socket.of("b").length >= 5 && socket.of("c").length > 0);
  expect(socket.of("c")).toEqual([
    { type: "error", requestId: "c", errorText: expect.stringContaining("lastSequence") },
  ]);
  performance.finish();
  await socket.ended("b");
  expect(socket.of("b").map(({ sequence, chunk }) => [sequence, chunk?.type])).toEqual([
    [undefined, undefined],
    [0, "start"],
    [1, "start-step"],
    [2, "text-start"],
    [3, "text-delta"],
    [4, "text-end"],
    [5, "finish-step"],
    [6, "finish"],
    [undefined, undefined],
  ]);
});

test("an abort stops only the run of its request, even before the run has begun", async () => {
  using socket = await connect();
  const [one, two] = [newConv(), newConv()];
  socket.say(send("a", one));
  const kept = await onStage(server, one);
  socket.say(send("b", two));
  socket.say({ type: "abort", requestId: "b" });
  socket.say({ type: "abort", requestId: "unknown" });
  const caller = testViewer({ org: "org-1", subject: "user-1" });
  await until("the conversation", async () => (await server.request(`/chat/${two}`)).ok);
  await until("the stop", async () => (await server.plane.run(caller, two))?.status === "stopped");
  expect(kept.signal.aborted).toBe(false);
  kept.finish();
  await socket.ended("a");
  expect(socket.of("b").some(({ type }) => type === "end")).toBe(false);
});

test("an abort of a queued request stops its run before the engine starts", async () => {
  const id = newConv();
  await server.chat(id, "first");
  const first = await onStage(server, id);
  using socket = await connect(undefined, "&policy=queue");
  socket.say(send("q", id, "second"));
  await until("the request is queued", () => socket.of("q").some(({ type }) => type === "start"));
  const queued = await until("the queued run", async () => {
    const { rows } = await status(id);
    return rows.find(({ status }) => status === "queued")?.run_id;
  });
  socket.say({ type: "abort", requestId: "q" });
  await until("the queued run stops", async () =>
    (await status(id)).rows.some((run) => run.run_id === queued && run.status === "stopped"),
  );
  first.finish();
  expect(server.engine.turns.filter(({ turn }) => turn.convId === id)).toHaveLength(1);
});

test("a message right after an abort starts its run, as a regenerated answer does", async () => {
  using socket = await connect();
  const id = newConv();
  socket.say(send("r0", id));
  await onStage(server, id);
  for (let i = 1; i < 4; i++) {
    socket.say({ type: "abort", requestId: `r${i - 1}` });
    const next = send(`r${i}`, id, "Again?");
    socket.say(
      i === 2 ? { ...next, trigger: "regenerate-message", messages: send("r1", id).messages } : next,
    );
    await until("an answer", () => socket.of(`r${i}`).length > 0);
    expect(socket.of(`r${i}`)[0]).toEqual({ type: "start", requestId: `r${i}` });
    await onStage(server, id, i + 1);
  }
  (await onStage(server, id, 4)).finish();
  await socket.ended("r3");
});

test("an unknown frame closes the socket with a code and a reason", async () => {
  for (const text of [
    "{",
    "null",
    '{"type":"send"}',
    '{"type":"dance","requestId":"a"}',
    '{"requestId":""}',
  ]) {
    using socket = await connect();
    socket.ws.send(text);
    expect(await socket.closed()).toEqual({ code: 4400, reason: "invalid_request" });
  }
});

test("answers an invalid request with an error, and keeps the socket open", async () => {
  using socket = await connect();
  socket.say({ ...send("a", "not an id") });
  socket.say({ ...send("b", newConv()), messages: [] });
  socket.say({ type: "resume", requestId: "c", id: "not an id" });
  socket.say({ type: "resume", requestId: "d", id: newConv() });
  await until("four answers", () => socket.frames.length >= 4);
  const types = ["a", "b", "c", "d"].map((id) => socket.of(id).map(({ type }) => type));
  expect(types).toEqual([["error"], ["error"], ["error"], ["no-active"]]);
});

test("limits the pending answers of a socket", async () => {
  using socket = await connect();
  for (let i = 0; i < 33; i++) socket.say(send(`r${i}`, newConv()));
  expect(await socket.closed()).toEqual({ code: 4429, reason: "limit_exceeded" });
});

test("a socket that does not read delays only its own answer, and gets every word later", async () => {
  using slow = await connect();
  using quick = await connect();
  const id = newConv();
  slow.say(send("a", id));
  const performance = await onStage(server, id);
  slow.ws.pause();
  quick.say({ type: "resume", requestId: "b", id });
  await until("it follows", () => quick.of("b").length > 0);
  const words = Array.from({ length: 200 }, (_, i) => `${i}:${"x".repeat(20_000)} `);
  performance.say(...words);
  performance.finish();
  await quick.ended("b");
  expect(await server.metric("khala_gateway_waiting_bytes")).toBeLessThan(1 << 20);
  slow.ws.resume();
  await slow.ended("a");
  const text = (requestId: string) =>
    (requestId === "a" ? slow : quick)
      .of(requestId)
      .map(({ chunk }) => chunk?.delta ?? "")
      .join("");
  expect(text("a") === words.join("")).toBe(true);
  expect(text("b") === words.join("")).toBe(true);
});

test("needs a token with the scope chat", async () => {
  const token = await server.token({ scopes: [] });
  await expect(connect(token)).rejects.toThrow("403");
});
