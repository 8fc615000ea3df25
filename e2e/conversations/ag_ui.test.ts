import { randomUUID } from "node:crypto";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { EVERYTHING, newConv, onStage } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ensureInstalled } from "../../scripts/install.ts";
import { importPeer } from "../peers/import_peer.ts";

// What is used of @ag-ui/client 1.0.0.
interface BaseEvent {
  readonly type: string;
}
interface Message {
  readonly id: string;
  readonly role: string;
  readonly content?: unknown;
}
interface HttpAgent {
  readonly messages: readonly Message[];
  addMessage(message: Message): void;
  setState(state: object): void;
  runAgent(parameters: { runId: string; forwardedProps?: object }): Promise<unknown>;
  abortRun(): void;
  subscribe(subscriber: { onEvent(given: { event: BaseEvent }): void }): void;
}
interface AgUi {
  readonly EventType: Readonly<Record<string, string>>;
  readonly HttpAgent: new (options: {
    url: string;
    threadId: string;
    headers: Record<string, string>;
  }) => HttpAgent;
}

await ensureInstalled("e2e/peers");
const { EventType, HttpAgent } = await importPeer<AgUi>("@ag-ui/client");

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

/** An agent as an app has it, with everything that it is told. */
async function openAgent(threadId: string, { token = "", query = "" } = {}) {
  const agent = new HttpAgent({
    url: `${server.url}/ag-ui${query}`,
    threadId,
    headers: { authorization: `Bearer ${token || (await server.token())}` },
  });
  const events: BaseEvent[] = [];
  agent.subscribe({ onEvent: ({ event }) => void events.push(event) });
  return {
    agent,
    events,
    /** Says something, and runs the agent. */
    ask(content: string, runId: string = randomUUID()) {
      agent.addMessage({ id: randomUUID(), role: "user", content });
      return agent.runAgent({ runId });
    },
  };
}

test("streams a run with the client's own ids, and its messages in order", async () => {
  const thread = newConv();
  const { agent, events, ask } = await openAgent(thread);
  const run = ask("How is the weather?", "my-run");
  const performance = await onStage(server, thread);
  expect(performance.turn.message).toBe("How is the weather?");
  performance.emit(EVERYTHING[2]!);
  await until("the first words", () => agent.messages.some(({ content }) => content === "I look."));
  performance.emit(...EVERYTHING.slice(3));
  performance.finish();
  await run;
  expect(events[0]).toMatchObject({ type: EventType.RUN_STARTED, threadId: thread, runId: "my-run" });
  expect(events.at(-1)).toMatchObject({ type: EventType.RUN_FINISHED, threadId: thread, runId: "my-run" });
  expect(agent.messages).toMatchObject([
    { role: "user" },
    {
      role: "assistant",
      content: "I look.",
      toolCalls: [
        { id: "c1", function: { name: "weather", arguments: '{"city":"Bern"}' } },
        { id: "c2", function: { name: "weather", arguments: '{"city":"Nowhere"}' } },
      ],
    },
    { role: "tool", toolCallId: "c1", content: '{"celsius":7}' },
    { role: "tool", toolCallId: "c2", content: '{"error":"There is no such place."}' },
    { role: "assistant", content: "It is cold." },
  ]);
  expect(events).toContainEqual(expect.objectContaining({ type: EventType.CUSTOM, name: "weather_result" }));
});

test("stores multimodal content, and passes state and forwarded properties to the engine as params", async () => {
  const thread = newConv();
  const { agent, events } = await openAgent(thread);
  const value = Buffer.from("\x89PNG\r\n\x1a\n", "latin1").toString("base64");
  agent.setState({ page: 2 });
  agent.addMessage({
    id: randomUUID(),
    role: "user",
    content: [
      { type: "text", text: "What is this?" },
      {
        type: "image",
        source: { type: "data", value, mimeType: "image/png" },
        metadata: { filename: "a.png" },
      },
      {
        type: "document",
        source: { type: "url", value: "https://files.example/b.pdf", mimeType: "application/pdf" },
      },
      { type: "image", source: { type: "url", value: "https://files.example/c" } },
    ],
  });
  const run = agent.runAgent({ runId: "r", forwardedProps: { tone: "dry" } });
  const performance = await onStage(server, thread);
  expect(performance.turn).toMatchObject({
    message: "What is this?",
    parts: [
      { text: "What is this?" },
      { file: { url: expect.stringMatching(/^\/files\//), media_type: "image/png", name: "a.png" } },
      { file: { url: "https://files.example/b.pdf", media_type: "application/pdf" } },
      { file: { url: "https://files.example/c", media_type: "image/*" } },
    ],
    params: { tone: "dry", state: { page: 2 } },
  });
  performance.emit({ file_added: { file: { url: `data:image/png;base64,${value}` } } });
  performance.finish();
  await run;
  const file = expect.objectContaining({ url: expect.stringMatching(/^\/files\//) });
  expect(events).toContainEqual(
    expect.objectContaining({ type: EventType.CUSTOM, name: "file", value: file }),
  );
});

test("refuses unsupported input with its field, instead of dropping it", async () => {
  const user = (content: unknown) => ({ messages: [{ id: "m", role: "user", content }] });
  const cases: [object, string][] = [
    [{ ...user("hi"), tools: [{ name: "not a name", description: "", parameters: {} }] }, "tools[0].name"],
    [{ ...user("hi"), tools: { t: 1 } }, "tools"],
    [{ ...user("hi"), resume: [{ interruptId: "i", status: "resolved" }] }, "resume[0].payload"],
    [{ ...user("hi"), forwardedProps: [1] }, "forwardedProps"],
    [user([{ type: "hologram" }]), "messages[0].content[0]"],
    [user([{ type: "image", source: { type: "file", value: "f1" } }]), "messages[0].content[0].source"],
    [user([{ type: "binary", mimeType: "image/png", id: "x" }]), "messages[0].content[0]"],
    [user([]), "messages"],
  ];
  for (const [body, field] of cases) {
    const sent = JSON.stringify({ threadId: newConv(), runId: randomUUID(), ...body });
    const response = await server.request("/ag-ui", { method: "POST", body: sent });
    const { error } = (await response.json()) as { error: { field: string } };
    expect([response.status, error.field]).toEqual([400, field]);
  }
});

test("reasoning is a message of its own, and the next turn continues the thread", async () => {
  const thread = newConv();
  const { agent, ask } = await openAgent(thread);
  for (const turn of [1, 2]) {
    const run = ask(`Question ${turn}`);
    const performance = await onStage(server, thread, turn);
    performance.emit({ reasoning_delta: { text: "Hm." } }, { text_delta: { text: `Answer ${turn}` } });
    performance.finish();
    await run;
  }
  expect(agent.messages.map(({ role, content }) => `${role}: ${content}`)).toEqual([
    "user: Question 1",
    "reasoning: Hm.",
    "assistant: Answer 1",
    "user: Question 2",
    "reasoning: Hm.",
    "assistant: Answer 2",
  ]);
});

test("a failed run is a RUN_ERROR with a message for people", async () => {
  const thread = newConv();
  const { events, ask } = await openAgent(thread);
  const run = ask("Hello?").catch((error: Error) => error);
  const performance = await onStage(server, thread);
  performance.say("Half of");
  performance.fail(new Error("the kettle is empty"));
  await run;
  expect(events.at(-1)).toMatchObject({
    type: EventType.RUN_ERROR,
    code: "engine_failed",
    message: expect.stringMatching(/\w/),
  });
  expect(events.at(-2)?.type).toBe(EventType.TEXT_MESSAGE_END);
});

test("the same runId starts one run, and gets the same answer", async () => {
  const thread = newConv();
  const first = await openAgent(thread);
  const second = await openAgent(thread);
  const runs = [first.ask("Hello?", "once"), second.ask("Hello?", "once")];
  const performance = await onStage(server, thread);
  performance.say("Hello.");
  performance.finish();
  await Promise.all(runs);
  const later = await openAgent(thread);
  await later.ask("Hello?", "once");
  expect(server.engine.turnCount(thread)).toBe(1);
  expect(second.events).toEqual(first.events);
  expect(later.events).toEqual(first.events);
});

test("abortRun leaves the stream, and the thread's id stops the run", async () => {
  const thread = newConv();
  const { agent, ask } = await openAgent(thread);
  const run = ask("Hello?").catch(() => undefined);
  const performance = await onStage(server, thread);
  performance.say("Blah");
  await until("the first words", () => agent.messages.some(({ content }) => content === "Blah"));
  agent.abortRun();
  await run;
  expect(performance.signal.aborted).toBe(false);

  const other = await openAgent(thread, { query: "?policy=queue" });
  const next = other.ask("And now?");
  await server.request(`/chat/${thread}/stop`, { method: "POST" });
  const second = await onStage(server, thread, 2);
  expect(performance.signal.aborted).toBe(true);
  await server.request(`/chat/${thread}/stop`, { method: "POST" });
  await next;
  expect(second.signal.aborted).toBe(true);
  expect(other.events.at(-1)).toMatchObject({ type: EventType.RUN_FINISHED, outcome: { type: "cancelled" } });
});

test("refuses an invalid run before the stream, with a code and the field", async () => {
  const post = (body: unknown, token?: string) =>
    server.request("/ag-ui", { method: "POST", body: JSON.stringify(body) }, token);
  const messages = [{ id: "1", role: "user", content: "Hello?" }];
  const cases: [unknown, string][] = [
    [{ threadId: newConv(), messages }, "runId"],
    [{ threadId: "not a thread", runId: "r", messages }, "threadId"],
    [{ threadId: newConv(), runId: "r", messages: [] }, "messages"],
    [
      { threadId: newConv(), runId: "r", messages: [{ id: "1", role: "tool", content: "x" }] },
      "messages[0].toolCallId",
    ],
    [{ threadId: newConv(), runId: "r", messages: [{ id: "1", role: "user", content: [] }] }, "messages"],
  ];
  for (const [body, field] of cases) {
    const response = await post(body);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { code: "invalid_request", field } });
  }
  const scopeless = await post(
    { threadId: newConv(), runId: "r", messages },
    await server.token({ scopes: [] }),
  );
  expect(scopeless.status).toBe(403);
});
