import { KhalaError } from "@khala/contracts";
import { beforeEach, describe, expect, test } from "vitest";
import { type Conversation, type Conversations, openConversations } from "./conversations.ts";
import { socketConversationSource } from "./socket_source.ts";
import type { ConversationFrame, ConversationState } from "./source.ts";
import {
  asked,
  delta,
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
let conversations: Conversations;
let conversation: Conversation;
let joined: ReturnType<typeof handConversation>["joined"];
let texts: ReturnType<typeof handConversation>["texts"];
beforeEach(() => {
  ({ connection, http, environment, conversations, conversation, joined, texts } = handConversation());
});

describe("following", () => {
  test("starts with the last messages, and continues from the cursor after a disconnect", () => {
    const stop = conversation.subscribe(() => {});
    const { channelNow } = connection;
    expect(channelNow.topic).toBe("conversation:c");
    expect(channelNow.join()).toEqual({ replay: 1_000 });
    channelNow.frame({ type: "hello", conv_id: "c", cursor: "e-0", run: null });
    // Cut before the snapshot: nothing is known yet.
    channelNow.handlers.onLeft(undefined);
    expect(channelNow.join()).toEqual({ replay: 1_000 });
    channelNow.frame({ type: "snapshot", messages: [], cursor: "e-0" });
    channelNow.events(1, "r", started, asked("Hi"), delta("Hel"));
    channelNow.handlers.onLeft(undefined);
    expect(channelNow.join()).toEqual({ after: "e-3" });
    channelNow.events(3, "r", delta("Hel"), delta("lo"));
    expect(texts()).toEqual([
      ["Hi", "done"],
      ["Hello", "streaming"],
    ]);
    stop();
  });

  test("shows who is present, with the device name, and clears it on disconnect", () => {
    conversations.setSource(socketConversationSource(connection, "laptop"));
    conversation.subscribe(() => {});
    const { channelNow } = connection;
    expect(channelNow.join()).toEqual({ replay: 1_000, device: "laptop" });
    channelNow.frame({ type: "hello", conv_id: "c", cursor: "e-0", run: null });
    channelNow.frame({ type: "snapshot", messages: [], cursor: "e-0" });
    const present = [
      { subject: "ada", device: "laptop", typing: false },
      { subject: "bob", device: "phone", typing: true },
    ];
    channelNow.frame({ type: "presence", present });
    expect(conversation.state().present).toEqual(present);
    channelNow.handlers.onLeft(undefined);
    expect(conversation.state().present).toEqual([]);
  });

  test("reports its health: live, connecting, offline or refused", () => {
    conversation.subscribe(() => {});
    expect(conversation.state().health).toBe("connecting");
    connection.channelNow.join();
    connection.channelNow.frame({ type: "hello", conv_id: "c", cursor: "e-0", run: null });
    expect(conversation.state().health).toBe("connecting");
    connection.channelNow.frame({ type: "snapshot", messages: [], cursor: "e-0" });
    expect(conversation.state().health).toBe("live");
    connection.channelNow.handlers.onLeft(new KhalaError("unavailable", "Gone."));
    expect(conversation.state()).toMatchObject({ health: "connecting", error: { code: "unavailable" } });
    connection.become({ state: "offline" });
    expect(conversation.state().health).toBe("offline");
    connection.become({ state: "unauthorised", error: new KhalaError("token_expired", "Old.") });
    expect(conversation.state()).toMatchObject({ health: "error", error: { code: "token_expired" } });
    connection.become({ state: "live" });
    connection.channelNow.handlers.onLeft(new KhalaError("missing_scope", "No chat."));
    expect(conversation.state()).toMatchObject({ health: "error", error: { code: "missing_scope" } });
  });

  test("follows again from its cursor after a gap, without missing an event", () => {
    joined();
    const { channelNow } = connection;
    channelNow.events(1, "r", started);
    channelNow.events(3, "r", delta("b"));
    expect(channelNow.left).toBe(true);
    expect(connection.channelNow.join()).toEqual({ after: "e-1" });
    connection.channelNow.events(2, "r", delta("a"), delta("b"));
    expect(texts()).toEqual([["ab", "streaming"]]);
  });

  test("notifies listeners of the first word at once, then once per frame", async () => {
    joined();
    await settled();
    environment.pass(100);
    let heard = 0;
    conversation.subscribe(() => heard++);
    connection.channelNow.events(1, "r", started);
    await settled();
    expect(heard).toBe(1);
    connection.channelNow.events(2, "r", delta("a"), delta("b"), delta("c"));
    await settled();
    expect(heard).toBe(1);
    expect(texts()).toEqual([["abc", "streaming"]]);
    environment.pass(16);
    expect(heard).toBe(2);
    environment.pass(100);
    expect(heard).toBe(2);
  });
});

describe("objects", () => {
  test("are shared between subscribers, and dropped a while after the last one unsubscribes", async () => {
    const first = joined();
    await settled();
    const second = conversations.get("c").subscribe(() => {});
    expect(conversations.get("c")).toBe(conversation);
    expect(connection.channels).toHaveLength(1);
    first();
    environment.pass(60_000);
    expect(connection.channelNow.left).toBe(false);
    second();
    second();
    environment.pass(4_999);
    expect(connection.channelNow.left).toBe(false);
    environment.pass(1);
    expect(connection.channelNow.left).toBe(true);
    expect(connection.listeners).toBe(0);
    expect(environment.timers).toBe(0);
    // One that was kept works again.
    conversation.subscribe(() => {});
    expect(connection.channels).toHaveLength(2);
    expect(connection.channelNow.join()).toEqual({ replay: 1_000 });
  });

  test("are kept for a subscriber that returns within that time", () => {
    const stop = joined();
    connection.channelNow.events(1, "r", started, delta("a"));
    stop();
    environment.pass(1_000);
    conversation.subscribe(() => {});
    environment.pass(60_000);
    expect(connection.channels).toHaveLength(1);
    expect(texts()).toEqual([["a", "streaming"]]);
  });
});

describe("ending", () => {
  test("a stop without a running run clears a run still shown as running", async () => {
    joined();
    connection.channelNow.frame({ type: "hello", cursor: "e-0", run: { run_id: "r", status: "running" } });
    expect(conversation.state().run).not.toBeNull();
    const stopped = conversation.stop();
    expect(http.last).toMatchObject({ method: "POST", path: "/chat/c/stop" });
    http.last.answer({ stopped: false });
    expect(await stopped).toBe(false);
    expect(conversation.state().run).toBeNull();
  });

  test("empties a deleted conversation, and the next message starts a new one", async () => {
    joined({ message_id: "u", role: "user", run_id: "", parts: [{ text: "old" }], status: "done" });
    connection.channelNow.frame({ type: "resync", reason: "deleted" });
    connection.channelNow.handlers.onLeft(new KhalaError("not_found", "The conversation was deleted."));
    expect(conversation.state()).toMatchObject({
      messages: [],
      health: "error",
      error: { code: "not_found" },
    });
    const sent = conversation.send("new");
    const { channels } = connection;
    expect(channels).toHaveLength(2);
    await settled();
    http.last.answer({ conv_id: "c", run_id: "r", cursor: "f-0" }, 202);
    await sent;
    expect(connection.channelNow.join()).toEqual({ replay: 1_000 });
  });
});

test("when another user signs in, drops the first user's messages and sends none of theirs", async () => {
  conversations.setScope("ann");
  joined();
  connection.channelNow.events(1, "r", started, asked("secret"));
  const sent = conversation.send("also secret").catch((error) => error);
  conversations.setScope("ann");
  expect(conversation.state().messages).toHaveLength(2);
  conversations.setScope("bob");
  expect(conversation.state()).toMatchObject({ messages: [], run: null });
  expect(await sent).toMatchObject({ code: "unavailable" });
  expect(connection.channelNow.join()).toEqual({ replay: 1_000 });
});

describe("other tabs", () => {
  test("get this tab's state, then each frame, and follow nothing themselves", () => {
    joined();
    connection.channelNow.events(1, "r", started, asked("Hi"), delta("a"));
    const follower = openConversations(connection, http, environment);
    follower.setSource(conversations);
    const there = follower.get("c");
    there.subscribe(() => {});
    expect(there.state()).toMatchObject({ health: "live", messages: conversation.state().messages });
    connection.channelNow.events(4, "r", delta("b"));
    connection.channelNow.handlers.onLeft(undefined);
    expect(there.state().messages).toEqual(conversation.state().messages);
    expect(there.state().health).toBe("connecting");
    expect(connection.channels).toHaveLength(1);
    // The leader has closed: this tab takes the socket, and continues from its cursor.
    conversations.close();
    follower.setSource(socketConversationSource(connection));
    expect(connection.channelNow.join()).toEqual({ after: "e-4" });
    connection.channelNow.events(5, "r", delta("c"));
    expect(there.state().messages[1]!.parts).toEqual([{ text: "abc" }]);
  });

  test("a conversation open only in another tab is followed for it, until it unsubscribes", () => {
    const seen: (ConversationState | ConversationFrame)[] = [];
    const leaving = new AbortController();
    const sink = {
      position: () => undefined,
      restore: (state: ConversationState) => void seen.push(state),
      frame: (frame: ConversationFrame) => void seen.push(frame),
      health: () => {},
    };
    conversations.follow("d", sink, leaving.signal);
    connection.channelNow.join();
    connection.channelNow.frame({ type: "snapshot", messages: [], cursor: "e-0" });
    connection.channelNow.events(1, "r", started);
    expect(seen).toHaveLength(2);
    leaving.abort();
    environment.pass(5_000);
    expect(connection.channelNow.left).toBe(true);
  });
});

test("requests the list and the log of conversations page by page", async () => {
  const list = conversations.list({ limit: 5, after: "x" });
  expect(http.last).toMatchObject({
    method: "GET",
    path: "/chat",
    options: { query: { limit: 5, after: "x" } },
  });
  http.last.answer({ conversations: [{ conv_id: "c" }] });
  expect(await list).toEqual({ conversations: [{ conv_id: "c" }] });
  void conversations.log("c", { limit: 5 });
  expect(http.last).toMatchObject({ method: "GET", path: "/chat/c/log", options: { query: { limit: 5 } } });
});
