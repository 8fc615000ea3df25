import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { QueueStateJson } from "@khala/contracts/conversation/v1";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { newConv, onStage } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";

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

async function ask(method: string, path: string, body?: unknown) {
  const response = await server.request(path, {
    method,
    ...(body !== undefined && {
      body: JSON.stringify(body),
      headers: { "content-type": "application/json" },
    }),
  });
  return { status: response.status, body: (await response.json()) as never };
}

const queueOf = async (conv: string) =>
  ((await ask("GET", `/chat/${conv}/queue`)).body as QueueStateJson).queued ?? [];
const aiBody = (id: string, text: string) => ({
  id,
  messages: [{ id: randomUUID(), role: "user", parts: [{ type: "text", text }] }],
});

test("the queue can be read, edited and cancelled over HTTP, and sockets get every change", async () => {
  const conv = newConv();
  await server.chat(conv, "one");
  const turn = await onStage(server, conv);
  const two = await server.chat(conv, "two", { policy: "queue" });
  const path = `/chat/${conv}/queue/${two.run_id}`;
  await using socket = await server.connect(conv, { after: two.cursor });
  expect((await queueOf(conv)).map(({ run_id }) => run_id)).toEqual([two.run_id]);
  expect(await ask("PATCH", path, { message: "zwei" })).toMatchObject({
    status: 200,
    body: { queued: [{ run_id: two.run_id, parts: [{ text: "zwei" }], author: "user-1" }] },
  });
  expect(await ask("PATCH", path, { parts: [{ text: "deux" }] })).toMatchObject({ status: 200 });
  for (const body of [{}, { message: "a", parts: [{ text: "b" }] }, { msg: "x" }])
    expect(await ask("PATCH", path, body)).toMatchObject({ status: 400 });
  expect(await ask("DELETE", path)).toEqual({ status: 200, body: { queued: [] } });
  for (const gone of [path, `/chat/${conv}/queue/nothing`])
    for (const [method, body] of [["DELETE"], ["PATCH", { message: "x" }]] as const)
      expect(await ask(method, gone, body)).toMatchObject({
        status: 404,
        body: { error: { code: "not_found" } },
      });
  await until("the changes", () => {
    const changes = socket.frames.flatMap(({ event }) => event?.queue_changed ?? []);
    const texts = changes.map(({ queued = [] }) => queued.map(({ parts }) => parts?.[0]?.text).join());
    return texts.at(-1) === "" && texts.includes("zwei") && texts.includes("deux");
  });
  turn.finish();
});

test("a stop takes the run from its body or its query, and refuses what it does not know", async () => {
  const conv = newConv();
  await server.chat(conv, "one");
  const turn = await onStage(server, conv);
  const [{ run_id: two }, { run_id: three }] = [
    await server.chat(conv, "two", { policy: "queue" }),
    await server.chat(conv, "three", { policy: "queue" }),
  ];
  const path = `/chat/${conv}/stop`;
  for (const body of [{ runid: two }, { run_id: 7 }, { run_id: "" }, [two]])
    expect(await ask("POST", path, body)).toMatchObject({
      status: 400,
      body: { error: { code: "invalid_request" } },
    });
  expect(await ask("POST", path, { runid: two })).toMatchObject({ body: { error: { field: "runid" } } });
  expect(await ask("POST", `${path}?run_id=${two}`, { run_id: three })).toMatchObject({
    status: 400,
    body: { error: { field: "run_id" } },
  });
  for (const [at, body, run_id] of [
    [path, { run_id: two }, two],
    [`${path}?run_id=${three}`, {}, three],
  ] as const)
    expect(await ask("POST", at, body)).toEqual({ status: 200, body: { run_id, stopped: true } });
  expect(turn.signal.aborted).toBe(false);
  expect(await ask("POST", path, {})).toMatchObject({ status: 200, body: { stopped: true } });
});

test("cancelling a message ends its stream, for the AI SDK and for AG-UI", async () => {
  const conv = newConv();
  await server.chat(conv, "one");
  const turn = await onStage(server, conv);
  const post = (path: string, body: unknown) =>
    server.request(path, {
      method: "POST",
      body: JSON.stringify(body),
      headers: { "content-type": "application/json" },
    });
  const ai = await post("/ai/chat?policy=queue", aiBody(conv, "two"));
  const messages = [{ id: "m", role: "user", content: "three" }];
  const agUi = await post("/ag-ui?policy=queue", { threadId: conv, runId: randomUUID(), messages });
  for (const { run_id } of await queueOf(conv))
    expect(await ask("DELETE", `/chat/${conv}/queue/${run_id}`)).toMatchObject({ status: 200 });
  const streamed = await ai.text();
  expect(streamed).toContain('"type":"abort"');
  expect(streamed.trimEnd().endsWith("data: [DONE]")).toBe(true);
  expect(await agUi.text()).toContain('"outcome":{"type":"cancelled"}');
  expect(turn.signal.aborted).toBe(false);
  turn.finish();
});

test("aborting an AI SDK socket request cancels its own queued message, and stops nothing else", async () => {
  const conv = newConv();
  await server.chat(conv, "one");
  const turn = await onStage(server, conv);
  const ws = new WebSocket(
    `${server.url.replace("http", "ws")}/ai/ws?policy=queue&token=${await server.token()}`,
  );
  await once(ws, "open");
  ws.send(
    JSON.stringify({ type: "send", requestId: "a", trigger: "submit-message", ...aiBody(conv, "two") }),
  );
  const [queued] = await until("the queue", async () => {
    const all = await queueOf(conv);
    return all.length > 0 && all;
  });
  ws.send(JSON.stringify({ type: "abort", requestId: "a" }));
  await until("the cancellation", async () => (await queueOf(conv)).length === 0);
  expect(turn.signal.aborted).toBe(false);
  const { status } = await ask("DELETE", `/chat/${conv}/queue/${queued!.run_id}`);
  expect(status).toBe(404);
  turn.finish();
  ws.terminate();
});
