import { createClient, type KhalaClient } from "@khala/client";
import { Changes, until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy, type TcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { newConv } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

let database: TestDatabase;
let server: ConversationServer;
let proxy: TcpProxy;
beforeAll(async () => {
  database = await testDatabase();
  server = await startConversations(database.url);
  const { hostname, port } = new URL(server.url);
  proxy = await startTcpProxy({ host: hostname, port: Number(port) });
});
afterAll(async () => {
  await proxy[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

const clients: KhalaClient[] = [];
afterEach(async () => {
  proxy.resume();
  for (const client of clients.splice(0)) await client.close();
});

/** A device that has the conversation open, and everything that it ever showed. */
class Device extends Changes {
  readonly client: KhalaClient;
  readonly #convId: string;
  /** The texts after each change. */
  readonly pictures: string[][] = [];

  constructor(convId: string, url = server.url) {
    super();
    this.client = createClient({ url, token: () => server.token() });
    clients.push(this.client);
    this.#convId = convId;
    this.conversation.subscribe(() => {
      this.pictures.push(this.texts);
      this.changed();
    });
  }

  get conversation() {
    return this.client.conversation(this.#convId);
  }

  get texts(): string[] {
    return this.conversation
      .state()
      .messages.map(({ parts = [] }) => parts.map(({ text = "" }) => text).join(""));
  }

  live(): Promise<unknown> {
    return until("live", () => this.conversation.state().health === "live", { on: this });
  }

  shows(...texts: readonly string[]): Promise<unknown> {
    const wanted = JSON.stringify(texts);
    return until(wanted, () => JSON.stringify(this.texts) === wanted, { on: this });
  }

  idle(): Promise<unknown> {
    return until("the end of the run", () => this.conversation.state().run === null, { on: this });
  }

  /** Pictures in which something that was there before was gone, or stood twice. */
  get flickers(): string[][] {
    return this.pictures.filter((texts, i) => {
      const before = this.pictures[i - 1] ?? [];
      return (
        before.some((text, at) => !(texts[at] ?? "").startsWith(text)) || new Set(texts).size < texts.length
      );
    });
  }
}

/** What the log says, in its order. */
async function logged(convId: string): Promise<string[]> {
  return [...(await server.texts(convId)).values()];
}

async function send(device: Device, text: string) {
  const { run_id } = await device.conversation.send(text);
  return server.engine.turn(run_id);
}

test("two devices on one conversation show the same words, as they arrive", async () => {
  const convId = newConv();
  const [laptop, phone] = [new Device(convId), new Device(convId)];
  await Promise.all([laptop.live(), phone.live()]);
  const performance = await send(laptop, "Hello?");
  performance.say("Hel");
  await Promise.all([laptop.shows("Hello?", "Hel"), phone.shows("Hello?", "Hel")]);
  expect(phone.conversation.state().run).toMatchObject({ run_id: performance.turn.runId, status: "running" });
  performance.say("lo.");
  performance.finish();
  await Promise.all([laptop.idle(), phone.idle()]);
  const answer = await send(phone, "And again?");
  answer.say("Yes.");
  answer.finish();
  const all = ["Hello?", "Hello.", "And again?", "Yes."];
  await Promise.all([laptop.shows(...all), phone.shows(...all)]);
  await Promise.all([laptop.idle(), phone.idle()]);
  expect(laptop.conversation.state().messages).toEqual(phone.conversation.state().messages);
  expect(laptop.conversation.state().messages).toEqual((await server.state(convId)).messages);
  expect([laptop.flickers, phone.flickers]).toEqual([[], []]);
  expect(await logged(convId)).toEqual(all);
});

test("a page reloaded during an answer shows its beginning, and then the rest", async () => {
  const convId = newConv();
  const before = new Device(convId);
  await before.live();
  const performance = await send(before, "Tell me.");
  performance.emit(
    { reasoning_delta: { text: "Hm." } },
    { tool_call: { tool_call_id: "t", tool: "search", input: { q: "otters" } } },
  );
  performance.say("Once ");
  await before.shows("Tell me.", "Once ");
  await before.client.close();
  const after = new Device(convId);
  performance.say("upon ");
  await after.shows("Tell me.", "Once upon ");
  performance.emit({ tool_result: { tool_call_id: "t", tool: "search", output: ["one"] } });
  performance.say("a time.");
  performance.finish();
  await after.shows("Tell me.", "Once upon a time.");
  await after.idle();
  expect(after.flickers).toEqual([]);
  expect(after.conversation.state().messages).toEqual((await server.state(convId)).messages);
});

test("a connection cut anywhere in a run loses, repeats and reorders no word", async () => {
  const convId = newConv();
  const steady = new Device(convId);
  const shaky = new Device(convId, proxy.through(server.url));
  await Promise.all([steady.live(), shaky.live()]);
  const performance = await send(shaky, "Count.");
  let text = "";
  for (let i = 1; i <= 120; i++) {
    text += `${i} `;
    performance.say(`${i} `);
    if (i % 30 !== 0) continue;
    // Somewhere in the middle of what is said: the answer so far has come to some part.
    await until("some words", () => (shaky.texts[1]?.length ?? 0) > text.length / 2, { on: shaky });
    proxy.cut();
    performance.say("| ");
    text += "| ";
    await shaky.shows("Count.", text);
  }
  performance.finish();
  await Promise.all([steady.shows("Count.", text), shaky.shows("Count.", text)]);
  await Promise.all([steady.idle(), shaky.idle()]);
  expect([steady.flickers, shaky.flickers]).toEqual([[], []]);
  expect(shaky.conversation.state().messages).toEqual((await server.state(convId)).messages);
});

test("a message whose answer is lost is resent, starts one run, and is shown once", async () => {
  const convId = newConv();
  const device = new Device(convId, proxy.through(server.url));
  await device.live();
  proxy.pause("answers");
  const sent = device.conversation.send("Once.");
  await until("the run", () => server.engine.turnCount(convId) === 1, { on: server.engine });
  proxy.cut();
  proxy.resume();
  const { run_id } = await sent;
  (await server.engine.turn(run_id)).finish();
  await device.shows("Once.");
  await device.idle();
  expect(server.engine.turnCount(convId)).toBe(1);
  expect(device.flickers).toEqual([]);
});

describe("two devices in step", () => {
  test("a stop ends the answer on both, with its text so far", async () => {
    const convId = newConv();
    const [laptop, phone] = [new Device(convId), new Device(convId)];
    await Promise.all([laptop.live(), phone.live()]);
    const performance = await send(laptop, "Talk.");
    performance.say("Blah ");
    await phone.shows("Talk.", "Blah ");
    expect(await phone.conversation.stop()).toBe(true);
    await Promise.all([laptop.idle(), phone.idle()]);
    for (const device of [laptop, phone])
      expect(device.conversation.state()).toMatchObject({
        messages: [{ status: "done" }, { status: "stopped", parts: [{ text: "Blah " }] }],
        outcome: { status: "stopped" },
      });
    await server.settled(convId);
    expect(await phone.conversation.stop()).toBe(false);
  });

  test("a message during a run is refused, queued or interrupts, as requested", async () => {
    const convId = newConv();
    const [laptop, phone] = [new Device(convId), new Device(convId)];
    await Promise.all([laptop.live(), phone.live()]);
    const first = await send(laptop, "One.");
    await expect(phone.conversation.send("No.")).rejects.toMatchObject({ code: "conversation_busy" });
    expect(phone.texts).not.toContain("No.");
    const { run_id } = await phone.conversation.send("Two.", { policy: "queue" });
    expect(phone.conversation.state().messages.at(-1)).toMatchObject({ status: "queued" });
    first.say("First.");
    first.finish();
    const second = await server.engine.turn(run_id);
    second.say("Second");
    await laptop.shows("One.", "First.", "Two.", "Second");
    const { run_id: third } = await laptop.conversation.send("Three!", { policy: "interrupt" });
    (await server.engine.turn(third)).finish();
    const all = ["One.", "First.", "Two.", "Second", "Three!"];
    await Promise.all([laptop.shows(...all), phone.shows(...all)]);
    await Promise.all([laptop.idle(), phone.idle()]);
    expect(phone.conversation.state().messages[3]).toMatchObject({ status: "stopped" });
    expect(laptop.flickers).toEqual([]);
  });

  test("a deleted conversation is empty everywhere, and the next message starts a new one", async () => {
    const convId = newConv();
    const [laptop, phone] = [new Device(convId), new Device(convId)];
    await Promise.all([laptop.live(), phone.live()]);
    (await send(laptop, "Old.")).finish();
    await phone.shows("Old.");
    await server.settled(convId);
    await phone.conversation.delete();
    await Promise.all([laptop.shows(), phone.shows()]);
    const performance = await send(laptop, "New.");
    performance.say("Yes.");
    performance.finish();
    await laptop.shows("New.", "Yes.");
    await laptop.idle();
  });
});

test("another subject's conversation is reported as missing", async () => {
  const convId = newConv();
  (await server.chat(convId, "mine").then(({ run_id }) => server.engine.turn(run_id))).finish();
  const stranger = createClient({ url: server.url, token: () => server.token({ sub: "somebody-else" }) });
  clients.push(stranger);
  const conversation = stranger.conversation(convId);
  conversation.subscribe(() => {});
  await until("the refusal", () => conversation.state().health === "error");
  expect(conversation.state()).toMatchObject({ messages: [], error: { code: "not_found" } });
});

test("lists own conversations, and reads a log page by page", async () => {
  const convId = newConv();
  const device = new Device(convId);
  const performance = await send(device, "Write it down.");
  performance.say("Done.");
  performance.finish();
  await device.shows("Write it down.", "Done.");
  const { conversations = [] } = await device.client.conversations.list({ limit: 100 });
  expect(conversations).toContainEqual(expect.objectContaining({ conv_id: convId, title: "Write it down." }));
  const first = await device.client.conversations.log(convId, { limit: 2 });
  const rest = await device.client.conversations.log(convId, { after: first.next! });
  const events = [...(first.events ?? []), ...(rest.events ?? [])];
  expect(events.map(({ seq }) => seq)).toEqual(events.map((_, i) => String(i + 1)));
  expect(events[1]).toMatchObject({ event: { message: { text: "Write it down." } } });
});

test("uploads files and sends them with a message, and every device can read them", async () => {
  const convId = newConv();
  const [sender, other] = [new Device(convId), new Device(convId)];
  await Promise.all([sender.live(), other.live()]);
  const png = new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 1, 2, 3]);
  const sent = sender.conversation.send({
    text: "What is this?",
    files: [
      new File([png], "cat.png"),
      { url: "https://files.example/b.pdf", media_type: "application/pdf" },
    ],
    params: { tone: "dry" },
  });
  expect(sender.conversation.state().messages.at(-1)).toMatchObject({
    status: "sending",
    parts: [{ text: "What is this?" }, { file: { name: "cat.png", size: "11" } }, { file: {} }],
  });
  const answer = await server.engine.turn((await sent).run_id);
  expect(answer.turn).toMatchObject({ message: "What is this?", params: { tone: "dry" } });
  answer.emit({ file_added: { file: { url: "data:text/plain,hello", name: "note.txt" } } });
  answer.emit({ source_added: { source: { source_id: "s", url: "https://a.example", title: "A" } } });
  answer.finish();
  const answered = () => other.conversation.state().messages[1]?.status === "done";
  await until("the answer", answered, { on: other });
  const [question, said] = other.conversation.state().messages;
  expect(question!.parts).toEqual(answer.turn.parts);
  const read = async (url = "") => new Uint8Array(await (await other.conversation.file(url)).arrayBuffer());
  expect(await read(question!.parts![1]!.file!.url)).toEqual(png);
  expect(said!.parts).toMatchObject([{ file: { name: "note.txt" } }, { source: { title: "A" } }]);
  expect(new TextDecoder().decode(await read(said!.parts![0]!.file!.url))).toBe("hello");
  await expect(other.conversation.file("https://a.example/files/x")).rejects.toMatchObject({
    code: "invalid_request",
  });

  const refused = sender.conversation.send({ files: [new File([], "empty")] });
  await expect(refused).rejects.toMatchObject({ code: "invalid_request" });
  expect(sender.conversation.state().messages.map(({ status }) => status)).not.toContain("sending");
});
