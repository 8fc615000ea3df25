import { randomUUID } from "node:crypto";
import { branchesOf, createClient, type KhalaClient } from "@khala/client";
import type { ConversationStateJson, UiMessagePageJson } from "@khala/contracts/conversation/v1";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import {
  type AiChat,
  newConv,
  onStage,
  openChat,
  TRANSPORTS,
  textOf,
} from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import type { UIMessage } from "ai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ensureInstalled } from "../../scripts/install.ts";
import { importPeer } from "../peers/import_peer.ts";

// What is used of @ag-ui/client 1.0.0.
interface AgUiMessage {
  readonly id: string;
  readonly role: string;
  readonly content?: unknown;
}
interface HttpAgent {
  readonly messages: readonly AgUiMessage[];
  setMessages(messages: readonly AgUiMessage[]): void;
  addMessage(message: AgUiMessage): void;
  runAgent(parameters: { runId: string }): Promise<unknown>;
}
interface AgUi {
  readonly HttpAgent: new (options: {
    url: string;
    threadId: string;
    headers: Record<string, string>;
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

/** What a page has after a reload. */
async function reloaded(conv: string): Promise<UIMessage[]> {
  const answer = await server.request(`/chat/${conv}/messages`);
  return ((await answer.json()) as UiMessagePageJson).messages as unknown as UIMessage[];
}

const said = (messages: readonly UIMessage[]) => messages.map((message) => [message.role, textOf(message)]);

/** Answers the next turn, which must be to this message, and waits for its end. */
async function answer(conv: string, turns: number, question: string, work: Promise<unknown>) {
  const performance = await onStage(server, conv, turns);
  expect(performance.turn.message).toBe(question);
  performance.say(`${question} ${turns}`);
  performance.finish();
  await work;
  await server.settled(conv);
  return performance.turn.history.map(({ parts = [] }) => parts[0]!.text);
}

describe.each(TRANSPORTS)("the AI SDK's Chat over %s", (transport) => {
  /** The chat has what a reload gives, apart from the id of a message that was edited. */
  async function isAsReloaded(chat: AiChat, conv: string): Promise<void> {
    expect(said(await reloaded(conv))).toEqual(said(chat.messages));
  }

  test("keeps chat and server equal after regenerate and edit, and the model gets no question twice", async () => {
    const conv = newConv();
    await using chat = openChat(server, transport, conv);
    await answer(conv, 1, "Hi", chat.sendMessage({ text: "Hi" }));
    await answer(conv, 2, "Why?", chat.sendMessage({ text: "Why?" }));
    expect(await answer(conv, 3, "Why?", chat.regenerate())).toEqual(["Hi", "Hi 1"]);
    await isAsReloaded(chat, conv);
    expect((await reloaded(conv)).map(({ id }) => id)).toEqual(chat.messages.map(({ id }) => id));
    const [hi, , why] = chat.messages;
    const edited = chat.sendMessage({ text: "Why not?", messageId: why!.id });
    expect(await answer(conv, 4, "Why not?", edited)).toEqual(["Hi", "Hi 1"]);
    await isAsReloaded(chat, conv);
    // The chat still has the first message under this id.
    expect(await answer(conv, 5, "Why not?", chat.regenerate())).toEqual(["Hi", "Hi 1"]);
    await isAsReloaded(chat, conv);
    const last = chat.regenerate({ messageId: chat.messages.at(-1)!.id });
    expect(await answer(conv, 6, "Why not?", last)).toEqual(["Hi", "Hi 1"]);
    await isAsReloaded(chat, conv);
    const again = chat.sendMessage({ text: "Why now?", messageId: why!.id });
    expect(await answer(conv, 7, "Why now?", again)).toEqual(["Hi", "Hi 1"]);
    await isAsReloaded(chat, conv);
    expect(await answer(conv, 8, "Hello", chat.sendMessage({ text: "Hello", messageId: hi!.id }))).toEqual(
      [],
    );
    await isAsReloaded(chat, conv);
    const next = chat.sendMessage({ text: "And?" });
    expect(await answer(conv, 9, "And?", next)).toEqual(["Hello", "Hello 8"]);
    await isAsReloaded(chat, conv);

    // A page that is loaded now goes on in the same way.
    await using page = openChat(server, transport, conv, { messages: await reloaded(conv) });
    const third = page.sendMessage({ text: "Then?", messageId: page.messages[2]!.id });
    expect(await answer(conv, 10, "Then?", third)).toEqual(["Hello", "Hello 8"]);
    await isAsReloaded(page, conv);
  });

  test("regenerate sends a refused message again, as a new one", async () => {
    const conv = newConv();
    await using chat = openChat(server, transport, conv, {});
    await answer(conv, 1, "One", chat.sendMessage({ text: "One" }));
    const busy = await server.chat(conv, "Busy");
    await chat.sendMessage({ text: "Two" });
    expect(chat.status).toBe("error");
    const performance = await onStage(server, conv, 2);
    performance.finish();
    await until("the end", async () => (await server.state(conv)).last_run?.run_id === busy.run_id);
    expect(await answer(conv, 3, "Two", chat.regenerate())).toEqual(["One", "One 1", "Busy"]);
    expect(said(await reloaded(conv)).slice(-2)).toEqual(said(chat.messages).slice(-2));
  });
});

test("an AG-UI agent that truncates its messages and runs again gets a new answer or version", async () => {
  const conv = newConv();
  const headers = { authorization: `Bearer ${await server.token()}` };
  const agent = new HttpAgent({ url: `${server.url}/ag-ui`, threadId: conv, headers });
  const run = () => agent.runAgent({ runId: randomUUID() });
  const texts = () => agent.messages.map(({ content }) => content);
  const isAsReloaded = async () => expect((await reloaded(conv)).map(textOf)).toEqual(texts());

  agent.addMessage({ id: "q1", role: "user", content: "Hi" });
  await answer(conv, 1, "Hi", run());
  agent.addMessage({ id: "q2", role: "user", content: "Why?" });
  await answer(conv, 2, "Why?", run());
  await isAsReloaded();
  expect((await reloaded(conv)).map(({ id }) => id)).toEqual(agent.messages.map(({ id }) => id));
  agent.setMessages(agent.messages.slice(0, 3));
  expect(await answer(conv, 3, "Why?", run())).toEqual(["Hi", "Hi 1"]);
  await isAsReloaded();
  agent.setMessages([...agent.messages.slice(0, 2), { id: "q2", role: "user", content: "Why not?" }]);
  expect(await answer(conv, 4, "Why not?", run())).toEqual(["Hi", "Hi 1"]);
  await isAsReloaded();
  agent.setMessages(agent.messages.slice(0, 3));
  expect(await answer(conv, 5, "Why not?", run())).toEqual(["Hi", "Hi 1"]);
  await isAsReloaded();
});

test("an AG-UI agent that replaces a message by one with a new id edits it", async () => {
  const conv = newConv();
  const headers = { authorization: `Bearer ${await server.token()}` };
  const open = () => new HttpAgent({ url: `${server.url}/ag-ui`, threadId: conv, headers });
  const agent = open();
  const run = (of = agent) => of.runAgent({ runId: randomUUID() });
  const isAsReloaded = async () =>
    expect((await reloaded(conv)).map(({ id }) => id)).toEqual(agent.messages.map(({ id }) => id));

  agent.addMessage({ id: "q1", role: "user", content: "Hi" });
  await answer(conv, 1, "Hi", run());
  agent.addMessage({ id: "q2", role: "user", content: "Why?" });
  await answer(conv, 2, "Why?", run());
  agent.addMessage({ id: "q3", role: "user", content: "Really?" });
  await answer(conv, 3, "Really?", run());
  await isAsReloaded();
  // Both the question and what followed its answer are replaced.
  agent.setMessages([...agent.messages.slice(0, 2), { id: "q2b", role: "user", content: "Why not?" }]);
  expect(await answer(conv, 4, "Why not?", run())).toEqual(["Hi", "Hi 1"]);
  await isAsReloaded();
  const { messages = [] } = await server.state(conv);
  expect(messages[2]).toMatchObject({ message_id: "q2b", siblings: ["q2", "q2b"] });
  // The next one follows, and so does that of an agent that has no earlier messages.
  agent.addMessage({ id: "q4", role: "user", content: "So" });
  expect(await answer(conv, 5, "So", run())).toEqual(["Hi", "Hi 1", "Why not?", "Why not? 4"]);
  await isAsReloaded();
  const other = open();
  other.addMessage({ id: "q5", role: "user", content: "And?" });
  expect(await answer(conv, 6, "And?", run(other))).toHaveLength(6);
});

describe("@khala/client", () => {
  const clients: KhalaClient[] = [];
  afterAll(() => Promise.all(clients.map((client) => client.close())));

  async function open(conv: string) {
    const client = createClient({ url: server.url, token: () => server.token() });
    clients.push(client);
    const conversation = client.conversation(conv);
    conversation.subscribe(() => {});
    await until("live", () => conversation.state().health === "live");
    return conversation;
  }

  /** Every device comes to what the server has. */
  async function agree(
    conv: string,
    devices: readonly Awaited<ReturnType<typeof open>>[],
  ): Promise<string[]> {
    const { messages = [] } = (await (await server.request(`/chat/${conv}`)).json()) as ConversationStateJson;
    const wanted = JSON.stringify(messages);
    for (const device of devices) {
      await until("the same messages", () => {
        const { messages: shown, run } = device.state();
        return run === null && shown.length === messages.length && sorted(shown) === sorted(messages);
      }).catch(() => expect(JSON.stringify(device.state().messages)).toBe(wanted));
    }
    return messages.map(({ parts = [] }) => parts[0]!.text!);
  }
  const sorted = (value: unknown) =>
    JSON.stringify(value, (_, of) =>
      typeof of === "object" && of !== null && !Array.isArray(of)
        ? Object.fromEntries(Object.entries(of).sort())
        : of,
    );

  test("every device shows a new answer, a new version and a chosen branch, and ends equal to the server", async () => {
    const conv = newConv();
    const a = await open(conv);
    const b = await open(conv);
    await answer(conv, 1, "Hi", a.send("Hi"));
    await answer(conv, 2, "Why?", b.send("Why?"));
    expect(await agree(conv, [a, b])).toEqual(["Hi", "Hi 1", "Why?", "Why? 2"]);
    const [hi, , , second] = a.state().messages;
    expect(await answer(conv, 3, "Why?", a.regenerate(second!.message_id!))).toEqual(["Hi", "Hi 1"]);
    expect(await agree(conv, [a, b])).toEqual(["Hi", "Hi 1", "Why?", "Why? 3"]);
    expect(branchesOf(b.state().messages[3]!)).toEqual({
      position: 2,
      count: 2,
      previous: second!.message_id,
      next: undefined,
    });
    await b.chooseBranch(second!.message_id!);
    expect(await agree(conv, [a, b])).toEqual(["Hi", "Hi 1", "Why?", "Why? 2"]);
    const editing = b.edit(hi!.message_id!, "Hello");
    expect(b.state().messages).toMatchObject([{ parts: [{ text: "Hello" }], status: "sending" }]);
    expect(await answer(conv, 4, "Hello", editing)).toEqual([]);
    expect(await agree(conv, [a, b])).toEqual(["Hello", "Hello 4"]);
    // Down to the newest message of that part of the tree.
    await a.chooseBranch(hi!.message_id!);
    expect(await agree(conv, [a, b])).toEqual(["Hi", "Hi 1", "Why?", "Why? 3"]);
    await expect(a.edit("none", "x")).rejects.toMatchObject({
      code: "not_found",
      details: { field: "edit" },
    });
    await expect(a.regenerate("none")).rejects.toMatchObject({ details: { field: "regenerate" } });
    expect(await agree(conv, [a, b, await open(conv)])).toEqual(["Hi", "Hi 1", "Why?", "Why? 3"]);
  });

  test("a device that joins before the first word of a new answer knows its siblings", async () => {
    const conv = newConv();
    const a = await open(conv);
    await answer(conv, 1, "Hi", a.send("Hi"));
    const [, first] = a.state().messages;
    const asked = a.regenerate(first!.message_id!);
    const performance = await onStage(server, conv, 2);
    await asked;
    const late = await open(conv);
    performance.say("Hey");
    performance.finish();
    await server.settled(conv);
    expect(await agree(conv, [a, late])).toEqual(["Hi", "Hey"]);
    expect(branchesOf(late.state().messages[1]!)?.count).toBe(2);
  });

  test("loads a chosen branch again that is too long for an event", async () => {
    const conv = newConv();
    const a = await open(conv);
    const b = await open(conv);
    const long = "x".repeat(70_000);
    await answer(conv, 1, long, a.send(long));
    await answer(conv, 2, "Why?", a.send("Why?"));
    const [first] = a.state().messages;
    await answer(conv, 3, "Hi", a.edit(first!.message_id!, "Hi"));
    expect(await agree(conv, [a, b])).toEqual(["Hi", "Hi 3"]);
    await a.chooseBranch(first!.message_id!);
    expect(await agree(conv, [a, b])).toEqual([long, `${long} 1`, "Why?", "Why? 2"]);
  });
});
