import { KhalaError } from "@khala/contracts";
import { beforeEach, expect, test } from "vitest";
import type { Conversation } from "./conversations.ts";
import {
  asked,
  type FakeConnection,
  type FakeEnvironment,
  type FakeHttp,
  handConversation,
  settled,
  started,
} from "./test_support.ts";

let connection: FakeConnection;
let http: FakeHttp;
let environment: FakeEnvironment;
let conversation: Conversation;
let joined: ReturnType<typeof handConversation>["joined"];
let texts: ReturnType<typeof handConversation>["texts"];
beforeEach(() => {
  ({ connection, http, environment, conversation, joined, texts } = handConversation());
});

test("shows a message at once and never twice, whichever of its event and its answer arrives first", async () => {
  joined();
  const { channelNow } = connection;
  const first = conversation.send("one");
  expect(texts()).toEqual([["one", "sending"]]);
  expect(conversation.state().sending).toBe(true);
  await settled();
  channelNow.events(1, "r-1", started, asked("one", "u-1"));
  expect(texts()).toEqual([["one", "done"]]);
  http.last.answer({ conv_id: "c", run_id: "r-1", cursor: "e-0" }, 202);
  expect(await first).toEqual({ run_id: "r-1" });
  expect(conversation.state().sending).toBe(false);
  channelNow.events(3, "r-1", { run_finished: {} });

  const second = conversation.send("one");
  expect(texts()).toEqual([
    ["one", "done"],
    ["one", "sending"],
  ]);
  await settled();
  http.last.answer({ conv_id: "c", run_id: "r-2", cursor: "e-3" }, 202);
  await second;
  expect(texts()).toEqual([
    ["one", "done"],
    ["one", "sending"],
  ]);
  channelNow.events(4, "r-2", started, asked("one", "u-2"));
  expect(texts()).toEqual([
    ["one", "done"],
    ["one", "done"],
  ]);
});

test("a message of another device with the same text does not replace ours", async () => {
  joined();
  const sent = conversation.send("hi", { policy: "queue" });
  await settled();
  connection.channelNow.events(1, "other", started, asked("hi", "u-other"));
  expect(texts()).toEqual([["hi", "done"]]);
  http.last.answer({ conv_id: "c", run_id: "mine", cursor: "e-2" }, 202);
  await sent;
  expect(texts()).toEqual([
    ["hi", "done"],
    ["hi", "queued"],
  ]);
});

test("retries with the same key when the answer is lost", async () => {
  joined();
  const sent = conversation.send("hi");
  await settled();
  const keys = () =>
    http.asked.map(({ options }) => (options.body as { idempotency_key: string }).idempotency_key);
  http.last.refuse(new KhalaError("unavailable", "No answer."));
  await settled();
  environment.pass(10_000);
  await settled();
  expect(keys()).toEqual(["id-1", "id-1"]);
  http.last.answer({ conv_id: "c", run_id: "r", cursor: "e-0" }, 202);
  expect(await sent).toEqual({ run_id: "r" });
});

test.each(["conversation_busy", "invalid_request"] as const)(
  "removes a message refused with %s, and rejects with the reason",
  async (code) => {
    joined();
    const sent = conversation.send("hi");
    await settled();
    http.last.refuse(new KhalaError(code, "No."));
    await expect(sent).rejects.toMatchObject({ code });
    expect(http.asked).toHaveLength(1);
    expect(texts()).toEqual([]);
    expect(conversation.state().sending).toBe(false);
  },
);

test("abandons a message after a minute without an answer, and when the caller aborts", async () => {
  joined();
  const late = conversation.send("late").catch((error) => error);
  for (let i = 0; i < 40; i++) {
    await settled();
    http.last?.refuse(new KhalaError("unavailable", "No answer."));
    await settled();
    environment.pass(5_000);
  }
  expect(await late).toMatchObject({ code: "unavailable" });
  const abort = new AbortController();
  const given = conversation.send("x", { signal: abort.signal }).catch((error) => error);
  await settled();
  abort.abort(new Error("Changed my mind."));
  expect(await given).toMatchObject({ message: "Changed my mind." });
  expect(texts()).toEqual([]);
});

test("sends messages one after the other", async () => {
  joined();
  const both = [conversation.send("one"), conversation.send("two", { policy: "queue" })];
  await settled();
  expect(http.asked.map(({ options }) => (options.body as { message: string }).message)).toEqual(["one"]);
  http.last.answer({ conv_id: "c", run_id: "r-1", cursor: "e-0" }, 202);
  await settled();
  http.last.answer({ conv_id: "c", run_id: "r-2", cursor: "e-0" }, 202);
  expect(await Promise.all(both)).toEqual([{ run_id: "r-1" }, { run_id: "r-2" }]);
});

test("shows a message sent before the history loads at its end, even if the history has the same text", async () => {
  conversation.subscribe(() => {});
  void conversation.send("hi");
  expect(texts()).toEqual([["hi", "sending"]]);
  const { channelNow } = connection;
  channelNow.join();
  const said = (message_id: string, text: string, run_id: string) => ({
    message_id,
    role: "user",
    run_id,
    parts: [{ text }],
    status: "done",
  });
  channelNow.frame({
    type: "snapshot",
    messages: [said("u-1", "hi", "r-1"), said("u-2", "ok", "r-2")],
    cursor: "e-0",
  });
  expect(texts()).toEqual([
    ["hi", "done"],
    ["ok", "done"],
    ["hi", "sending"],
  ]);
  channelNow.events(1, "r-3", started, asked("hi", "u-3"));
  expect(texts()).toEqual([
    ["hi", "done"],
    ["ok", "done"],
    ["hi", "done"],
  ]);
});
