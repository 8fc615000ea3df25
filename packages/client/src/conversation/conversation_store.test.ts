import { KhalaError } from "@khala/contracts";
import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { describe, expect, test } from "vitest";
import type { LogEvent } from "../log.ts";
import { memory } from "../storage/memory.ts";
import type { Storage } from "../storage/storage.ts";
import { MAX_CHARACTERS, MAX_CONVERSATIONS } from "./conversation_store.ts";
import { asked, delta, finished, handConversation, settled, started } from "./test_support.ts";

const PLACE = "conversation:c";

/** A client of the person, opened on what a device has. */
async function open(storage: Storage, scope = "ann") {
  const events: LogEvent[] = [];
  const hand = handConversation({ storage, log: (event) => events.push(event) });
  const pictures: string[] = [];
  hand.conversation.subscribe(() =>
    pictures.push(
      hand
        .texts()
        .map(([text]) => text)
        .join("|"),
    ),
  );
  hand.conversations.setScope(scope);
  await settled();
  return { ...hand, events, pictures, state: () => hand.conversation.state() };
}

/** The server has taken the join, and begins; resolves with what it was asked for. */
function begin(
  { connection: { channelNow } }: Awaited<ReturnType<typeof open>>,
  messages?: readonly object[],
) {
  const params = channelNow.join();
  channelNow.frame({ type: "hello", conv_id: "c", cursor: "e-0", run: null });
  if (messages) channelNow.frame({ type: "snapshot", messages, cursor: "e-0" });
  return params;
}

/** The stored conversation, as text. */
async function kept(storage: Storage, place = PLACE, scope = "ann"): Promise<string> {
  return JSON.stringify((await storage.load(scope, place))?.documents ?? []);
}

/** A device with a question and the beginning of its answer. */
async function device(): Promise<Storage> {
  const storage = memory();
  const client = await open(storage);
  begin(client, []);
  client.connection.channelNow.events(1, "r", started, asked("Hi"), delta("Hel"));
  await client.conversations.close();
  return storage;
}

const said = (text: string, message_id: string): TranscriptMessageJson => ({
  message_id,
  role: "user",
  run_id: "",
  parts: [{ text }],
  status: "done",
});

describe("an offline start", () => {
  test("shows the stored messages at once, marked as stored, and continues from them when connected", async () => {
    const client = await open(await device());
    expect(client.texts()).toEqual([
      ["Hi", "done"],
      ["Hel", "streaming"],
    ]);
    client.connection.become({ state: "offline" });
    expect(client.state()).toMatchObject({ health: "offline", fromDevice: true, run: { run_id: "r" } });
    client.connection.become({ state: "live" });
    expect(begin(client)).toEqual({ after: "e-3" });
    expect(client.state()).toMatchObject({ health: "live", fromDevice: false });
    client.connection.channelNow.events(3, "r", delta("Hel"), delta("lo"), finished);
    await settled();
    client.environment.pass(100);
    expect(client.texts()).toEqual([
      ["Hi", "done"],
      ["Hello", "done"],
    ]);
    for (const [i, text] of client.pictures.slice(1).entries())
      expect(text.startsWith(client.pictures[i]!), `${client.pictures[i]} → ${text}`).toBe(true);
  });

  test("a server that cannot continue from there replaces them in one step", async () => {
    const client = await open(await device());
    begin(client);
    client.connection.channelNow.frame({ type: "resync", reason: "trimmed" });
    client.connection.channelNow.frame({
      type: "snapshot",
      messages: [said("Hi", "u"), said("Again", "n")],
      cursor: "f-9",
    });
    client.environment.pass(100);
    await settled();
    expect(client.pictures).not.toContain("");
    expect(client.texts().map(([text]) => text)).toEqual(["Hi", "Again"]);
  });

  test("shows the newest messages of a long conversation, and loads all from the server", async () => {
    const storage = memory();
    const text = "x".repeat(MAX_CHARACTERS / 4);
    const all = Array.from({ length: 8 }, (_, i) => said(`${i}${text}`, `m-${i}`));
    const before = await open(storage);
    begin(before, all);
    await before.conversations.close();
    const client = await open(storage);
    expect(client.state().messages).toEqual(all.slice(-3));
    expect((await kept(storage)).length).toBeLessThan(MAX_CHARACTERS + 1_000);
    expect(begin(client, all)).toEqual({ replay: 1_000 });
    expect(client.state()).toMatchObject({ messages: all, fromDevice: false });
  });

  test("shows nothing of another user's messages", async () => {
    const storage = await device();
    expect((await open(storage, "bob")).texts()).toEqual([]);
    expect((await open(storage, "ann")).texts()).toHaveLength(2);
  });

  test("follows nothing before the user is known", async () => {
    const hand = handConversation({ storage: memory() });
    hand.conversation.subscribe(() => {});
    await settled();
    expect(hand.connection.channels).toHaveLength(0);
    hand.conversations.setScope("ann");
    await settled();
    expect(hand.connection.channels).toHaveLength(1);
  });
});

describe("the stored conversation", () => {
  test("is written once a second, and at once when a run ends", async () => {
    const storage = memory();
    let commits = 0;
    const { commit } = storage;
    storage.commit = (scope, topic, change) => {
      if (topic === PLACE) commits++;
      return commit(scope, topic, change);
    };
    const client = await open(storage);
    begin(client, []);
    const { channelNow } = client.connection;
    channelNow.events(1, "r", started, asked("Count."));
    for (let seq = 3; seq < 103; seq++) {
      channelNow.events(seq, "r", delta(`${seq} `));
      client.environment.pass(100);
      await settled();
    }
    expect(commits).toBe(10);
    channelNow.events(103, "r", finished);
    await settled();
    expect(commits).toBe(11);
    expect(await kept(storage)).toContain("102 ");
  });

  test("keeps the most recent conversations, up to the limit", async () => {
    const storage = memory();
    const client = await open(storage);
    const names = Array.from({ length: MAX_CONVERSATIONS + 3 }, (_, i) => `c${i}`);
    for (const name of [...names, "c5"]) {
      const stop = client.conversations.get(name).subscribe(() => {});
      await settled();
      begin(client, [said(name, "u")]);
      stop();
      client.environment.pass(10_000);
      await settled();
    }
    const there: string[] = [];
    for (const name of names) if ((await kept(storage, `conversation:${name}`)) !== "[]") there.push(name);
    expect(there).toEqual(names.slice(3));
    // The conversation that was opened again stays, and the next is evicted.
    client.conversations.get("new").subscribe(() => {});
    await settled();
    begin(client, [said("new", "u")]);
    client.environment.pass(1_000);
    await settled();
    expect(await kept(storage, "conversation:c3")).toBe("[]");
    expect(await kept(storage, "conversation:c5")).not.toBe("[]");
  });

  test.for([
    ["another format", { version: "0" }],
    ["another conversation", { key: "d" }],
    ["no messages", { payload: { run: null, cursor: "e-3", seq: "3" } }],
    ["messages that are none", { payload: { messages: ["Hi"], run: null, cursor: "e-3", seq: "3" } }],
    [
      "parts that are none",
      {
        payload: {
          messages: [{ message_id: "u", role: "user", parts: ["Hi"] }],
          run: null,
          cursor: "e-3",
          seq: "3",
        },
      },
    ],
    ["a sequence that is none", { payload: { messages: [], run: null, cursor: "e-3", seq: "x" } }],
  ] as const)("is ignored when it has %s", async ([, damage]) => {
    const storage = await device();
    const { documents, cursor } = (await storage.load("ann", PLACE))!;
    const put = documents.map((document) => ({ ...document, ...damage }));
    await storage.commit("ann", PLACE, { replace: true, put, remove: [], cursor });
    const client = await open(storage);
    expect(client.state()).toMatchObject({ messages: [], fromDevice: false });
    expect(begin(client, [])).toEqual({ replay: 1_000 });
  });

  test("is deleted when this user can no longer read the conversation", async () => {
    const storage = await device();
    const client = await open(storage);
    client.connection.channelNow.handlers.onLeft(new KhalaError("not_found", "There is none."));
    await settled();
    expect(client.state()).toMatchObject({ messages: [], health: "error", fromDevice: false });
    expect(await kept(storage)).toBe("[]");
  });

  test("is kept when the token is refused", async () => {
    const storage = await device();
    const client = await open(storage);
    client.connection.channelNow.handlers.onLeft(new KhalaError("token_expired", "It is old."));
    await settled();
    expect(client.texts()).toHaveLength(2);
    expect(await kept(storage)).not.toBe("[]");
  });

  test("is deleted with the conversation, here or on another device", async () => {
    const storage = await device();
    const elsewhere = await open(storage);
    begin(elsewhere);
    elsewhere.connection.channelNow.frame({ type: "resync", reason: "deleted" });
    await settled();
    expect(await kept(storage)).toBe("[]");

    const again = await device();
    const hand = handConversation({ storage: again });
    hand.conversations.setScope("ann");
    hand.conversations.setStoring(false);
    const deleted = hand.conversation.delete();
    hand.http.last.answer(undefined, 204);
    await deleted;
    expect(await kept(again)).toBe("[]");
  });

  test("is deleted when the storage is cleared", async () => {
    const storage = await device();
    await storage.clear();
    expect((await open(storage)).texts()).toEqual([]);
  });

  test.each([[[]], [["ann"]], [["ann", PLACE]]])(
    "stays deleted by clear(%j) while it is open, until it is opened again",
    async (what) => {
      const storage = await device();
      const client = await open(storage);
      begin(client);
      const { channelNow } = client.connection;
      await settled();
      channelNow.events(4, "r", delta("lo"));
      client.environment.pass(1_000);
      await settled();
      expect(await kept(storage)).toContain("Hello");

      await storage.clear(...what);
      for (const [seq, event] of [delta(", "), delta("you."), finished].entries()) {
        channelNow.events(5 + seq, "r", event);
        client.environment.pass(1_000);
        await settled();
      }
      expect(client.texts().map(([text]) => text)).toEqual(["Hi", "Hello, you."]);
      await client.conversations.close();
      expect(await kept(storage)).toBe("[]");
      if (what.length < 2) expect(await kept(storage, "conversation:")).toBe("[]");
      expect(client.events.map(({ event }) => event)).toEqual(["storage_changed"]);

      const next = await open(storage);
      expect(begin(next, [said("Hi", "u")])).toEqual({ replay: 1_000 });
      await settled();
      next.environment.pass(1_000);
      await settled();
      expect(await kept(storage)).toContain("Hi");
    },
  );

  test("stays deleted when another tab begins to write after the clear", async () => {
    const storage = await device();
    const client = await open(storage);
    client.conversations.setStoring(false);
    begin(client);
    await storage.clear();
    client.conversations.setStoring(true);
    client.environment.pass(1_000);
    await settled();
    expect(await kept(storage)).toBe("[]");
  });

  test("is written by a tab that follows another one", async () => {
    const storage = await device();
    const leader = await open(storage);
    const client = await open(storage);
    client.conversations.setStoring(false);
    for (const each of [leader, client]) {
      begin(each);
      await settled();
      each.connection.channelNow.events(4, "r", delta("lo"));
    }
    await leader.conversations.close();
    await settled();
    client.conversations.setStoring(true);
    client.connection.channelNow.events(5, "r", delta("!"));
    client.environment.pass(1_000);
    await settled();
    expect(await kept(storage)).toContain("Hello!");
    expect(client.events).toEqual([]);
  });

  test("is stored for its user, even if another user signs in before it is written", async () => {
    const storage = memory();
    const client = await open(storage);
    begin(client, [said("mine", "u")]);
    client.conversations.setScope("bob");
    await client.conversations.close();
    expect(await kept(storage, PLACE, "ann")).toContain("mine");
    expect(await kept(storage, PLACE, "bob")).toBe("[]");
  });

  test("is written by the leading tab only", async () => {
    const storage = memory();
    const client = await open(storage);
    client.conversations.setStoring(false);
    begin(client, [said("Hi", "u")]);
    client.environment.pass(10_000);
    await settled();
    expect(await kept(storage)).toBe("[]");
    client.conversations.setStoring(true);
    client.environment.pass(1_000);
    await settled();
    expect(await kept(storage)).toContain("Hi");
    client.connection.channelNow.events(1, "r", started, delta("more"));
    client.conversations.setStoring(false);
    await settled();
    expect(await kept(storage)).toContain("more");
  });
});

test("a failing storage is reported once, and the conversation continues", async () => {
  const fails = () => Promise.reject(new Error("The disk is full."));
  const client = await open({ load: fails, commit: fails, clear: fails, close: async () => {} });
  expect(begin(client, [said("Hi", "u")])).toEqual({ replay: 1_000 });
  for (let seq = 1; seq < 10; seq++) {
    client.connection.channelNow.events(seq, "r", delta("a"));
    client.environment.pass(5_000);
    await settled();
  }
  expect(client.texts()).toEqual([
    ["Hi", "done"],
    ["aaaaaaaaa", "streaming"],
  ]);
  expect(client.events.map(({ event }) => event)).toEqual(["storage_unreadable", "storage_failed"]);
});

test("a storage that never answers delays a conversation by 15 s, and does not block closing", async () => {
  const never = () => new Promise<never>(() => {});
  const client = await open({ load: never, commit: never, clear: never, close: async () => {} });
  expect(client.connection.channels).toHaveLength(0);
  client.environment.pass(15_000);
  await settled();
  begin(client, [said("Hi", "u")]);
  const closed = client.conversations.close();
  await settled();
  client.environment.pass(15_000);
  await closed;
  expect(client.texts()).toEqual([]);
});
