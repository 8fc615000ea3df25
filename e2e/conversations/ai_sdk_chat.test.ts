import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import {
  EVERYTHING,
  newConv,
  onStage,
  openChat,
  says,
  settled,
  TRANSPORTS,
  textOf,
} from "@khala/test-support/servers/ai_chat";
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

describe.each(TRANSPORTS)("the AI SDK's Chat over %s", (transport) => {
  test("answers a message word by word, and logs both under the chat's ids", async () => {
    const conv = newConv();
    await using chat = openChat(server, transport, conv);
    const sent = chat.sendMessage({ text: "Hello?" });
    const performance = await onStage(server, conv);
    expect(performance.turn.message).toBe("Hello?");
    performance.say("Hel");
    await says(chat, "Hel");
    expect(chat.status).toBe("streaming");
    performance.say("lo.");
    await says(chat, "Hello.");
    performance.finish();
    await sent;
    expect(chat.status).toBe("ready");
    const { messages } = await server.state(conv);
    expect(messages?.map(({ message_id }) => message_id)).toEqual(chat.messages.map(({ id }) => id));
  });

  test("stores the files of a message, and passes the app's body and metadata to the engine as params", async () => {
    const conv = newConv();
    await using chat = openChat(server, transport, conv);
    const png = Buffer.from("\x89PNG\r\n\x1a\nbytes", "latin1");
    const data = { type: "file" as const, url: `data:image/png;base64,${png.toString("base64")}` };
    const files = [
      { ...data, mediaType: "image/png", filename: "cat.png" },
      { type: "file" as const, url: "https://files.example/b.pdf", mediaType: "application/pdf" },
    ];
    const sent = chat.sendMessage(
      { text: "What is this?", files, metadata: { from: "a test" } },
      { body: { tone: "dry" } },
    );
    const performance = await onStage(server, conv);
    const { turn } = performance;
    expect(turn).toMatchObject({
      message: "What is this?",
      parts: [
        { file: { url: expect.stringMatching(/^\/files\//), media_type: "image/png", name: "cat.png" } },
        { file: { url: "https://files.example/b.pdf", media_type: "application/pdf" } },
        { text: "What is this?" },
      ],
      params: { tone: "dry", metadata: { from: "a test" } },
    });
    expect(Buffer.from((await turn.readFile(turn.parts[0]!.file!.url!)).bytes)).toEqual(png);
    performance.emit(
      { source_added: { source: { source_id: "s1", url: "https://a.example", title: "A" } } },
      { file_added: { file: { url: data.url, media_type: "image/png" } } },
    );
    performance.say("A cat.");
    performance.finish();
    await sent;
    expect(chat.error).toBeUndefined();
    expect(chat.messages.at(-1)!.parts).toMatchObject([
      { type: "step-start" },
      { type: "source-url", sourceId: "s1", url: "https://a.example", title: "A" },
      { type: "file", mediaType: "image/png", url: expect.stringMatching(/^\/files\//) },
      { type: "text", text: "A cat." },
    ]);

    const again = chat.sendMessage({ files: [files[0]!] });
    const next = await onStage(server, conv, 2);
    expect(next.turn).toMatchObject({ message: "", parts: [{ file: { name: "cat.png" } }] });
    next.finish();
    await again;
  });

  test("reasoning, tools, their failures and custom events are parts; a status is not kept", async () => {
    const conv = newConv();
    const data: { type: string; data: unknown }[] = [];
    await using chat = openChat(server, transport, conv, { onData: (part) => data.push(part) });
    const sent = chat.sendMessage({ text: "How is the weather?" });
    const performance = await onStage(server, conv);
    performance.emit(...EVERYTHING);
    performance.finish();
    await sent;
    expect(chat.error).toBeUndefined();
    expect(chat.messages[1]?.parts).toMatchObject([
      { type: "step-start" },
      { type: "reasoning", text: "Let me see.", state: "done" },
      { type: "text", text: "I look.", state: "done" },
      { type: "tool-weather", toolCallId: "c1", state: "output-available", output: { celsius: 7 } },
      { type: "tool-weather", toolCallId: "c2", state: "output-error", errorText: "There is no such place." },
      { type: "data-weather_result", data: { celsius: 7 } },
      { type: "text", text: "It is cold.", state: "done" },
    ]);
    expect(data.map(({ type }) => type)).toEqual(["data-status", "data-weather_result"]);
  });

  test("a failed run is an error with a message for people, and the next one works", async () => {
    const conv = newConv();
    await using chat = openChat(server, transport, conv);
    const first = chat.sendMessage({ text: "One" });
    const performance = await onStage(server, conv);
    performance.say("Half of");
    performance.fail(new Error("the kettle is empty"));
    await first;
    expect(chat.status).toBe("error");
    expect(chat.error?.message).not.toBe("");
    expect(textOf(chat.messages.at(-1))).toBe("Half of");
    const second = chat.sendMessage({ text: "Two" });
    const next = await onStage(server, conv, 2);
    next.say("All of it");
    next.finish();
    await second;
    expect(chat.status).toBe("ready");
    expect(textOf(chat.messages.at(-1))).toBe("All of it");
  });

  test("refuses a message to a busy conversation with a reason, or queues it if the policy says so", async () => {
    const conv = newConv();
    await using busy = openChat(server, transport, conv);
    await using refused = openChat(server, transport, conv);
    await using patient = openChat(server, transport, conv, { policy: "queue" });
    const first = busy.sendMessage({ text: "One" });
    const performance = await onStage(server, conv);
    await refused.sendMessage({ text: "Two" });
    expect(refused.status).toBe("error");
    expect(refused.error?.message).toMatch(/run|busy/i);
    const third = patient.sendMessage({ text: "Three" });
    performance.say("1");
    await says(busy, "1");
    performance.finish();
    await first;
    const next = await onStage(server, conv, 2);
    expect(next.turn.message).toBe("Three");
    next.say("3");
    next.finish();
    await third;
    expect(textOf(patient.messages.at(-1))).toBe("3");
    expect(textOf(busy.messages.at(-1))).toBe("1");
  });

  test("a new client resumes in the middle and gets every word once, under the same id", async () => {
    const conv = newConv();
    await using first = openChat(server, transport, conv);
    void first.sendMessage({ text: "Count" });
    const performance = await onStage(server, conv);
    performance.emit(...EVERYTHING);
    const words = Array.from({ length: 2_000 }, (_, i) => ` ${i}`);
    performance.say(...words.slice(0, 1_000));
    await until("the first half", () => textOf(first.messages.at(-1)).endsWith(" 999"));

    await using second = openChat(server, transport, conv, { messages: first.messages.slice(0, 1) });
    const resumed = second.resumeStream();
    await until("the first half again", () => textOf(second.messages.at(-1)).endsWith(" 999"));
    expect(second.status).toBe("streaming");
    performance.say(...words.slice(1_000));
    performance.finish();
    await resumed;
    await settled(first);
    expect(textOf(second.messages.at(-1))).toBe(`I look.It is cold.${words.join("")}`);
    expect(second.messages).toEqual(first.messages);
  });

  test("a resume with nothing to resume changes nothing, also in a missing conversation", async () => {
    const conv = newConv();
    await using chat = openChat(server, transport, conv);
    await chat.resumeStream();
    expect(chat.status).toBe("ready");
    const sent = chat.sendMessage({ text: "Hello?" });
    const performance = await onStage(server, conv);
    performance.say("Hello.");
    performance.finish();
    await sent;
    const before = structuredClone(chat.messages);
    await chat.resumeStream();
    expect(chat.status).toBe("ready");
    expect(chat.error).toBeUndefined();
    expect(chat.messages).toEqual(before);
  });

  test("another subject's conversation looks idle, and refuses messages", async () => {
    const conv = newConv();
    await using chat = openChat(server, transport, conv);
    const sent = chat.sendMessage({ text: "A secret" });
    const performance = await onStage(server, conv);
    performance.say("Psst");
    await says(chat, "Psst");
    await using other = openChat(server, transport, conv, { token: await server.token({ sub: "eve" }) });
    await other.resumeStream();
    expect(other.messages).toEqual([]);
    await other.sendMessage({ text: "Let me in" });
    expect(other.status).toBe("error");
    performance.finish();
    await sent;
    expect(server.engine.turnCount(conv)).toBe(1);
  });

  test("the run continues without its client, which can resume it", async () => {
    const conv = newConv();
    const first = openChat(server, transport, conv);
    void first.sendMessage({ text: "Hello?" });
    const performance = await onStage(server, conv);
    performance.say("One, ");
    await says(first, "One, ");
    // A closed tab: HTTP knows no other way to leave than to abort the request.
    if (transport === "http") await first.stop();
    else await first[Symbol.asyncDispose]();
    performance.say("two, ");
    await using second = openChat(server, transport, conv);
    const resumed = second.resumeStream();
    await says(second, "One, two, ");
    expect(performance.signal.aborted).toBe(false);
    performance.say("three.");
    performance.finish();
    await resumed;
    expect(textOf(second.messages.at(-1))).toBe("One, two, three.");
  });

  test("a stop ends the run, and the other tab sees it", async () => {
    const conv = newConv();
    await using chat = openChat(server, transport, conv);
    const sent = chat.sendMessage({ text: "Talk" });
    const performance = await onStage(server, conv);
    performance.say("Blah");
    await says(chat, "Blah");
    await using tab = openChat(server, transport, conv);
    const resumed = tab.resumeStream();
    await says(tab, "Blah");
    await tab.stop();
    if (transport === "http") {
      const answer = await server.request(`/ai/chat/${conv}/stop`, { method: "POST" });
      expect(await answer.json()).toMatchObject({ stopped: true });
    }
    await Promise.all([sent, resumed]);
    expect(performance.signal.aborted).toBe(true);
    expect(chat.status).toBe("ready");
    expect(chat.error).toBeUndefined();
    expect(textOf(chat.messages.at(-1))).toBe("Blah");
    expect((await server.state(conv)).messages?.at(-1)?.status).toBe("stopped");
  });

  test("each regeneration is a new answer to the same message", async () => {
    const conv = newConv();
    await using chat = openChat(server, transport, conv);
    const answer = async (turns: number, sent: Promise<void>) => {
      const performance = await onStage(server, conv, turns);
      expect(performance.turn.message).toBe("Again?");
      performance.say(`Answer ${turns}`);
      performance.finish();
      await sent;
      expect(chat.messages.map(textOf)).toEqual(["Again?", `Answer ${turns}`]);
    };
    await answer(1, chat.sendMessage({ text: "Again?" }));
    await answer(2, chat.regenerate());
    await answer(3, chat.regenerate());
    await answer(4, chat.regenerate({ messageId: chat.messages.at(-1)!.id }));
  });
});
