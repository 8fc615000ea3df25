import { randomUUID } from "node:crypto";
import { stopOnAbort } from "@khala/client";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { newConv, onStage, openChat, says, settled } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ensureInstalled } from "../../scripts/install.ts";
import { importPeer } from "../peers/import_peer.ts";

interface HttpAgent {
  readonly messages: readonly { readonly content?: unknown }[];
  addMessage(message: { id: string; role: string; content: string }): void;
  runAgent(parameters: { runId: string }): Promise<unknown>;
  abortRun(): void;
}
interface AgUi {
  readonly HttpAgent: new (options: {
    url: string;
    threadId: string;
    headers: Record<string, string>;
    fetch?: typeof globalThis.fetch;
  }) => HttpAgent;
}

await ensureInstalled("e2e/peers");
const { HttpAgent } = await importPeer<AgUi>("@ag-ui/client");

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

const statusOf = async (conv: string) => (await server.state(conv)).run?.status;

test("stop() of an AI SDK chat over HTTP stops its run, while it streams and after a resume", async () => {
  const conv = newConv();
  await using chat = openChat(server, "http", conv, { fetch: stopOnAbort() });
  const sent = chat.sendMessage({ text: "Hello?" });
  const turn = await onStage(server, conv);
  turn.say("Blah");
  await says(chat, "Blah");
  await chat.stop();
  await until("the stop", () => turn.signal.aborted);
  await sent;
  await until("its end", async () => (await statusOf(conv)) !== "running");

  const again = chat.sendMessage({ text: "And now?" });
  const second = await onStage(server, conv, 2);
  second.say("Well");
  await says(chat, "Well");
  await using other = openChat(server, "http", conv, { fetch: stopOnAbort() });
  void other.resumeStream();
  await says(other, "Well");
  await other.stop();
  await until("the stop", () => second.signal.aborted);
  await again;
  await settled(chat);
});

test("stop() before the server has answered stops the run that it starts", async () => {
  const conv = newConv();
  const gate = Promise.withResolvers<void>();
  const slow = stopOnAbort(async (input, init) => {
    const response = await fetch(input, init);
    if (String(input).includes("/ai/chat")) await gate.promise;
    return response;
  });
  await using chat = openChat(server, "http", conv, { fetch: slow });
  const sent = chat.sendMessage({ text: "Hello?" });
  const turn = await onStage(server, conv);
  await chat.stop();
  expect(turn.signal.aborted).toBe(false);
  gate.resolve();
  await until("the stop", () => turn.signal.aborted);
  await sent;
});

test("stop() of a queued AI SDK message cancels it, and not the run before it", async () => {
  const conv = newConv();
  await server.chat(conv, "one");
  const turn = await onStage(server, conv);
  await using chat = openChat(server, "http", conv, { fetch: stopOnAbort(), policy: "queue" });
  const sent = chat.sendMessage({ text: "two" });
  const queued = async () => (await server.state(conv)).queued?.length;
  await until("the queue", async () => (await queued()) === 1);
  await chat.stop();
  await until("the cancellation", async () => (await queued()) === 0);
  await sent;
  expect(turn.signal.aborted).toBe(false);
  turn.finish();
});

test("abortRun() of an AG-UI agent stops its run", async () => {
  const conv = newConv();
  const agent = new HttpAgent({
    url: `${server.url}/ag-ui`,
    threadId: conv,
    headers: { authorization: `Bearer ${await server.token()}` },
    fetch: stopOnAbort(),
  });
  agent.addMessage({ id: randomUUID(), role: "user", content: "Hello?" });
  const run = agent.runAgent({ runId: randomUUID() }).catch(() => undefined);
  const turn = await onStage(server, conv);
  turn.say("Blah");
  await until("the first words", () => agent.messages.some(({ content }) => content === "Blah"));
  agent.abortRun();
  await until("the stop", () => turn.signal.aborted);
  await run;
});

test("a client that disconnects without an abort, as a reloaded page does, stops nothing", async () => {
  const conv = newConv();
  const leaving = new AbortController();
  const closing = stopOnAbort((input, init) =>
    fetch(input, { ...init, signal: AbortSignal.any([leaving.signal, init!.signal!]) }),
  );
  await using chat = openChat(server, "http", conv, { fetch: closing });
  const sent = chat.sendMessage({ text: "Hello?" });
  const turn = await onStage(server, conv);
  turn.say("Blah");
  await says(chat, "Blah");
  leaving.abort();
  await sent;
  turn.say(" and more");
  turn.finish();
  await until("the end", async () => {
    const { messages = [] } = await server.state(conv);
    return messages.at(-1)?.status === "done" && messages.at(-1)?.parts?.[0]?.text === "Blah and more";
  });
});
