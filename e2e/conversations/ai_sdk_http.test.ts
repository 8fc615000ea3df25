import { isDeepStrictEqual } from "node:util";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { newConv, onStage, openChat, says, settled } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, expect, test } from "vitest";

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

const userMessage = (text: string, id = "u1") => ({ id, role: "user", parts: [{ type: "text", text }] });

const withPart = (part: object) => ({ id: "u1", role: "user", parts: [part] });

function post(
  body: unknown,
  { headers = {}, token }: { headers?: Record<string, string>; token?: string } = {},
) {
  return server.request("/ai/chat", { method: "POST", body: JSON.stringify(body), headers }, token);
}

/** The chunks of an answer that is complete. */
async function chunksOf(response: Response): Promise<unknown[]> {
  const frames = (await response.text()).split("\n\n").filter((frame) => frame !== "");
  expect(frames.pop()).toBe("data: [DONE]");
  return frames.map((frame) => JSON.parse(frame.replace(/^data: /, "")));
}

test("answers with an unbuffered event stream that pages of allowed origins may read", async () => {
  const id = newConv();
  const sent = post({ id, messages: [userMessage("Hello?")] }, { headers: { origin: server.url } });
  const performance = await onStage(server, id);
  performance.say("Hello.");
  performance.finish();
  const response = await sent;
  expect(response.status).toBe(200);
  expect(Object.fromEntries(response.headers)).toMatchObject({
    "content-type": "text/event-stream",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
    "cache-control": "no-cache, no-transform",
    "access-control-allow-origin": server.url,
  });
  expect(await chunksOf(response)).toEqual([
    { type: "start", messageId: expect.any(String) },
    { type: "start-step" },
    { type: "text-start", id: "0" },
    { type: "text-delta", id: "0", delta: "Hello." },
    { type: "text-end", id: "0" },
    { type: "finish-step" },
    { type: "finish" },
  ]);
});

test("the same message sent twice is one run with the same answer, at the same time and later", async () => {
  const id = newConv();
  const body = { id, messages: [userMessage("Hello?", "the-message")], trigger: "submit-message" };
  const sent = [post(body), post(body)];
  const performance = await onStage(server, id);
  performance.say("Hel", "lo.");
  performance.finish();
  const [first, second] = await Promise.all((await Promise.all(sent)).map(chunksOf));
  expect(second).toEqual(first);
  expect(await chunksOf(await post(body))).toEqual(first);
  expect(server.engine.turnCount(id)).toBe(1);
});

test("an edited message starts a branch beside the first one", async () => {
  const id = newConv();
  const texts = ["Hello?", "Goodbye?"];
  for (const [i, text] of texts.entries()) {
    const sent = post({
      id,
      messages: [userMessage(text)],
      trigger: "submit-message",
      ...(i > 0 && { messageId: "u1" }),
    });
    const performance = await onStage(server, id, i + 1);
    performance.finish();
    await chunksOf(await sent);
  }
  const { messages } = await server.state(id);
  const questions = messages?.filter(({ role }) => role === "user") ?? [];
  expect(questions.flatMap(({ parts }) => parts?.map(({ text }) => text))).toEqual(["Goodbye?"]);
  expect(questions[0]?.siblings).toHaveLength(2);
});

test("refuses an invalid message before the stream, with a code and the field", async () => {
  const cases: [unknown, string][] = [
    [{ id: "not an id", messages: [userMessage("a")] }, "id"],
    [{ id: newConv() }, "messages"],
    [{ id: newConv(), messages: [] }, "messages"],
    [{ id: newConv(), messages: [{ id: "a1", role: "assistant", parts: [] }] }, "messages"],
    [{ id: newConv(), messages: [userMessage("")] }, "messages"],
    [{ id: newConv(), messages: [userMessage("a")], trigger: "resume-stream" }, "trigger"],
    [{ id: newConv(), messages: [withPart({ type: "data-chart", data: 1 })] }, "messages[0].parts[0]"],
    [{ id: newConv(), messages: [withPart({ type: "file", mediaType: "a/b" })] }, "messages[0].parts[0].url"],
    [{ id: newConv(), messages: [withPart({ type: "file", url: "blob:x" })] }, "parts[0].file.url"],
    [{ id: newConv(), messages: [withPart({ type: "text" })] }, "messages[0].parts[0].text"],
  ];
  for (const [body, field] of cases) {
    const response = await post(body);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { code: "invalid_request", field } });
  }
});

test("accepts larger bodies for files, and refuses them to strangers before reading", async () => {
  const id = newConv();
  const bytes = Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), Buffer.alloc(3 << 20)]);
  const url = `data:image/png;base64,${bytes.toString("base64")}`;
  const body = { id, messages: [withPart({ type: "file", mediaType: "image/png", url })] };
  const sent = post(body);
  const performance = await onStage(server, id);
  expect(performance.turn.parts[0]!.file).toMatchObject({ size: String(bytes.length) });
  performance.finish();
  expect((await sent).status).toBe(200);
  expect((await post({ ...body, fill: "x".repeat(8 << 20) })).status).toBe(413);
  const token = await server.token({ scopes: [] });
  expect((await post({ ...body, fill: "x".repeat(8 << 20) }, { token })).status).toBe(403);
});

test("needs a token with the scope chat", async () => {
  const token = await server.token({ scopes: [] });
  const id = newConv();
  expect((await post({ id, messages: [userMessage("a")] }, { token })).status).toBe(403);
  expect((await server.request(`/ai/chat/${id}/stream`, {}, token)).status).toBe(403);
  expect((await server.request(`/ai/chat/${id}/stop`, { method: "POST" }, token)).status).toBe(403);
  expect((await fetch(`${server.url}/ai/chat`, { method: "POST" })).status).toBe(401);
  expect((await server.request("/ai/ws")).status).toBe(426);
  expect((await server.request(`/ai/chat/${id}/stream`, { method: "HEAD" })).status).toBe(404);
});

test("POST and DELETE stop a run, and report when nothing runs", async () => {
  for (const method of ["POST", "DELETE"]) {
    const id = newConv();
    const sent = post({ id, messages: [userMessage("Talk")] });
    const performance = await onStage(server, id);
    performance.say("Blah");
    const answer = await server.request(`/ai/chat/${id}/stop`, { method });
    expect(await answer.json()).toMatchObject({ stopped: true, run_id: performance.turn.runId });
    expect((await chunksOf(await sent)).slice(-3)).toEqual([
      { type: "abort" },
      { type: "finish-step" },
      { type: "finish" },
    ]);
    // The record follows the log within a moment.
    await until("nothing to stop", async () => {
      const again = await server.request(`/ai/chat/${id}/stop`, { method });
      return isDeepStrictEqual(await again.json(), { stopped: false });
    });
  }
});

test("a resumed answer comes in one piece, then live", async () => {
  const { chat } = server;
  const id = newConv();
  await chat(id, "Hello?");
  const performance = await onStage(server, id);
  performance.say(..."abcdefgh".split("").flatMap((letter) => [letter, "-".repeat(200)]));
  const text = [..."abcdefgh"].map((letter) => letter + "-".repeat(200)).join("");
  await using tab = openChat(server, "http", id);
  void tab.resumeStream();
  await says(tab, text);
  const sent = server.request(`/ai/chat/${id}/stream`);
  const response = await sent;
  performance.say("!");
  performance.finish();
  expect(await chunksOf(response)).toEqual([
    { type: "start", messageId: performance.turn.messageId },
    { type: "start-step" },
    { type: "text-start", id: "0" },
    { type: "text-delta", id: "0", delta: text },
    { type: "text-delta", id: "0", delta: "!" },
    { type: "text-end", id: "0" },
    { type: "finish-step" },
    { type: "finish" },
  ]);
});

test("another server can follow and resume an answer, and a server that shuts down ends its stream", async () => {
  const other = await startConversations(database.url);
  const id = newConv();
  await using chat = openChat(server, "http", id);
  const sent = chat.sendMessage({ text: "Hello?" });
  const performance = await onStage(server, id);
  performance.say("One, ");
  await says(chat, "One, ");
  await using tab = openChat(other, "http", id);
  const resumed = tab.resumeStream();
  await says(tab, "One, ");
  performance.say("two, ");
  await says(tab, "One, two, ");
  await other[Symbol.asyncDispose]();
  await resumed;
  // Not as if it were complete: the chat knows that there is more.
  expect(tab.status).toBe("error");
  expect(performance.signal.aborted).toBe(false);
  performance.say("three.");
  performance.finish();
  await sent;
  await settled(chat);
  await says(chat, "One, two, three.");
});

test("deleting a conversation ends its stream with an error", async () => {
  const id = newConv();
  const sent = post({ id, messages: [userMessage("Hello?")] });
  const performance = await onStage(server, id);
  performance.say("Hello");
  const response = await sent;
  expect((await server.request(`/chat/${id}`, { method: "DELETE" })).status).toBe(204);
  const chunks = await chunksOf(response);
  expect(chunks.slice(-3)).toEqual([
    { type: "error", errorText: expect.any(String) },
    { type: "finish-step" },
    { type: "finish" },
  ]);
});
