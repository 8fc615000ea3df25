import { randomUUID } from "node:crypto";
import type { KhalaError } from "@khala/contracts";
import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { Changes, until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { Turn } from "../engines/engine.ts";
import { parseCursor } from "../log/cursor.ts";
import type { Log } from "../log/log.ts";
import type { OpenConversationPlane } from "../open_plane.ts";
import { answerOf, endOf, engineOf, eventsOf, GatedEngine, Servers } from "../test_support.ts";
import type { TimelineSubscriber } from "../timeline/attachment.ts";
import type { OutgoingFrames } from "../timeline/timeline.ts";
import { openMessageStore } from "./message_store.ts";

const ada = testViewer();
const convId = () => `conv-${randomUUID()}`;
const quick = engineOf(async function* ({ message }) {
  yield { text_delta: { text: `${message}!` } };
});

const textsOf = (messages: readonly TranscriptMessageJson[] = []) =>
  messages.map(({ parts = [], status }) => [parts.map(({ text = "" }) => text).join(""), status]);

async function ask(plane: OpenConversationPlane, conv: string, message: string): Promise<string> {
  const { run_id = "" } = await plane.chat(ada, { convId: conv, message });
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  return run_id;
}

/** The stored messages of a conversation, in order. */
async function stored(servers: Servers, conv: string) {
  return servers.database.query<{
    message_id: string;
    parent_id: string | null;
    parts: { text?: string }[];
    status: string;
  }>({
    text: "SELECT message_id, parent_id, parts, status FROM runtime.messages WHERE conv_id = $1 ORDER BY log_seq",
    values: [conv],
  });
}

/** A socket that remembers what it was sent. */
class Socket extends Changes implements TimelineSubscriber {
  readonly read: {
    readonly type: string;
    readonly reason?: string;
    readonly messages?: readonly TranscriptMessageJson[];
    readonly event?: Record<string, { readonly text?: string }>;
  }[] = [];
  ended: KhalaError | undefined;

  offer({ frames }: OutgoingFrames): boolean {
    for (const { json } of frames) this.read.push(JSON.parse(json));
    this.changed();
    return true;
  }

  end(error: KhalaError): void {
    this.ended = error;
    this.changed();
  }
}

test("stores a question and its answer by the end of the run, each with the message before as parent", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: quick });
  const conv = convId();
  await ask(plane, conv, "one");
  await ask(plane, conv, "two");
  const rows = await stored(servers, conv);
  expect(rows.map(({ parts, status }) => [parts[0]!.text, status])).toEqual([
    ["one", "done"],
    ["one!", "done"],
    ["two", "done"],
    ["two!", "done"],
  ]);
  const ids = rows.map(({ message_id }) => message_id);
  expect(rows.map(({ parent_id }) => parent_id)).toEqual([null, ...ids.slice(0, 3)]);
  const { messages } = await plane.state(ada, conv);
  expect(messages!.map(({ parent_id = null }) => parent_id)).toEqual([null, ...ids.slice(0, 3)]);
  expect(messages!.map(({ author }) => author)).toEqual([ada.subject, undefined, ada.subject, undefined]);
});

test("stores the parts before the end is in the log", async () => {
  await using servers = await Servers.open();
  const seen: string[] = [];
  const conv = convId();
  const { plane } = await servers.start({
    engine: quick,
    wrapLog: (log) => ({
      ...log,
      async append(stream, entries, options) {
        if (entries.some((entry) => entry.includes("run_finished")))
          seen.push(...(await stored(servers, conv)).map(({ parts }) => parts[0]!.text!));
        return log.append(stream, entries, options);
      },
    }),
  });
  await ask(plane, conv, "one");
  expect(seen).toEqual(["one", "one!"]);
});

test("stores a growing answer at intervals, with the position of the log", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const clock = new ManualClock(Date.now());
  const { plane, log } = await servers.start({ engine: engine.factory, clock, leaseMs: 3_600_000 });
  const conv = convId();
  await plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(log, conv)));
  expect(await stored(servers, conv)).toHaveLength(1);
  await until("it is stored", async () => {
    await clock.advance(2_000);
    return (await stored(servers, conv)).length === 2;
  });
  expect((await stored(servers, conv))[1]).toMatchObject({ parts: [{ text: "one: " }], status: "streaming" });
  const [{ log_seq } = {}] = await servers.database.query({
    text: "SELECT max(log_seq) AS log_seq FROM runtime.messages WHERE conv_id = $1",
    values: [conv],
  });
  expect(log_seq).toBe(3n);
  engine.release("one");
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
});

test("a start that fails removes its message, and the same id can be sent again", async () => {
  await using servers = await Servers.open();
  let broken = true;
  const { plane } = await servers.start({
    engine: quick,
    wrapLog: (log): Log => ({
      ...log,
      open: (stream, generation) => {
        if (broken) throw Object.assign(new Error("The log is away."), { code: "x" });
        return log.open(stream, generation);
      },
    }),
  });
  const conv = convId();
  const message = { convId: conv, message: "one", messageId: "mine" };
  await expect(plane.chat(ada, message)).rejects.toThrow();
  expect(await stored(servers, conv)).toEqual([]);
  broken = false;
  await plane.chat(ada, message);
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  expect(textsOf((await plane.state(ada, conv)).messages)).toEqual([
    ["one", "done"],
    ["one!", "done"],
  ]);
});

test("refuses a message with the id of an answer", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: quick });
  const conv = convId();
  await ask(plane, conv, "one");
  const answer = (await plane.state(ada, conv)).messages!.at(-1)!.message_id!;
  await expect(plane.chat(ada, { convId: conv, message: "two", messageId: answer })).rejects.toMatchObject({
    code: "invalid_request",
    details: { field: "message_id" },
  });
});

test("replaces characters that jsonb cannot store", async () => {
  await using servers = await Servers.open();
  const engine = engineOf(async function* () {
    yield { text_delta: { text: "a\0b" } };
    yield { tool_call: { tool_call_id: "t", tool: "x", input: { "\0": "\ud800" } } };
  });
  const { plane } = await servers.start({ engine });
  const conv = convId();
  await ask(plane, conv, "one");
  const { messages } = await plane.state(ada, conv);
  expect(messages!.at(-1)!.parts).toMatchObject([{ text: "a\ufffdb" }, { tool: { tool_call_id: "t" } }]);
});

test("a warm and a cold reader return the same messages at every moment", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const warm = await servers.start({ engine: engine.factory });
  const conv = convId();
  const compare = async () => {
    const cold = await servers.start({ engine: engine.factory });
    const [a, b] = [await warm.plane.state(ada, conv), await cold.plane.state(ada, conv)];
    expect(b).toEqual(a);
    await cold.plane.stop();
    return textsOf(a.messages);
  };
  await warm.plane.attach(ada, conv, new Socket(), { kind: "now" });
  for (const message of ["one", "two", "three"]) {
    await warm.plane.chat(ada, { convId: conv, message });
    await until("some text", async () => answerOf(await eventsOf(warm.log, conv)).includes(`${message}: `));
    expect((await compare()).at(-1)).toEqual([`${message}: `, "streaming"]);
    engine.release(message);
    await until("the end", async () => (await warm.plane.run(ada, conv))?.status === "finished");
    expect((await compare()).at(-1)).toEqual([`${message}: done`, "done"]);
  }
  await warm.log.trim(`chat:${conv}`, { entries: 1 });
  expect(await compare()).toHaveLength(6);
});

test("an engine gets the newest 200 messages, whatever the log still has", async () => {
  await using servers = await Servers.open();
  const turns: Turn[] = [];
  const { plane, log } = await servers.start({
    engine: engineOf(async function* (turn) {
      turns.push(turn);
      yield { text_delta: { text: "!" } };
    }),
  });
  const conv = convId();
  await ask(plane, conv, "first");
  await fill(servers, conv, 300);
  await log.delete(`chat:${conv}`);
  await ask(plane, conv, "last");
  const { history } = turns.at(-1)!;
  expect(history).toHaveLength(200);
  expect(history.at(-1)).toMatchObject({ parts: [{ text: "300" }], status: "done" });
  expect(JSON.stringify(history)).not.toContain("last");
});

/** Adds so many messages to the end of a conversation. */
async function fill(servers: Servers, conv: string, count: number): Promise<void> {
  await servers.database.query({
    text: `WITH made AS (
        INSERT INTO runtime.messages (org_id, conv_id, message_id, parent_id, role, parts, status)
        SELECT c.org_id, c.conv_id, 'fill-' || i, CASE WHEN i = 1 THEN c.leaf_id ELSE 'fill-' || (i - 1) END, 'user',
          jsonb_build_array(jsonb_build_object('text', i::text)), 'done'
        FROM runtime.conversations c, generate_series(1, $2::int) i WHERE c.conv_id = $1
      )
      UPDATE runtime.conversations SET leaf_id = 'fill-' || $2::int WHERE conv_id = $1`,
    values: [conv, count],
  });
}

test("opens a conversation of 10,000 messages with one page, and reads back page by page", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: quick });
  const conv = convId();
  await ask(plane, conv, "first");
  await fill(servers, conv, 10_000);
  const state = await plane.state(ada, conv);
  expect(state.messages).toHaveLength(100);
  expect(state.messages!.at(-1)).toMatchObject({ message_id: "fill-10000" });
  const socket = new Socket();
  await plane.attach(ada, conv, socket, { kind: "replay", messages: 10 });
  expect(socket.read[1]!.messages!.map(({ message_id }) => message_id)).toEqual(
    Array.from({ length: 10 }, (_, i) => `fill-${9_991 + i}`),
  );
  let all = textsOf(state.messages);
  for (let { before } = state; before !== undefined; ) {
    const page = await plane.messages(ada, conv, { before, limit: 1_000 });
    all = [...textsOf(page.messages), ...all];
    before = page.before;
  }
  expect(all).toHaveLength(10_002);
  expect(all[0]).toEqual(["first", "done"]);
  await expect(plane.messages(ada, conv, { before: "nothing", limit: 10 })).rejects.toMatchObject({
    code: "invalid_request",
    details: { field: "before" },
  });
});

test("a page ends with the message that exceeds its bytes", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: quick });
  const conv = convId();
  await ask(plane, conv, "first");
  await fill(servers, conv, 20);
  const store = openMessageStore(servers.database);
  const page = await store.before({ org: ada.org, convId: conv }, "fill-20", { messages: 100, bytes: 40 });
  expect(page.messages.map(({ message_id }) => message_id)).toEqual(["fill-17", "fill-18", "fill-19"]);
  expect(page.before).toBe("fill-17");
});

test("a cursor of an expired log gets resync and the messages, and continues live", async () => {
  await using servers = await Servers.open();
  const { plane, log } = await servers.start({ engine: quick });
  const conv = convId();
  await ask(plane, conv, "one");
  const cursor = parseCursor((await plane.state(ada, conv)).cursor!, "cursor");
  await log.delete(`chat:${conv}`);
  const socket = new Socket();
  await plane.attach(ada, conv, socket, { kind: "after", cursor });
  await until("the snapshot", () => socket.read.some(({ type }) => type === "snapshot"), { on: socket });
  expect(socket.read.map(({ type }) => type)).toEqual(["hello", "resync", "snapshot"]);
  expect(socket.read[1]).toMatchObject({ reason: "trimmed" });
  expect(textsOf(socket.read[2]!.messages)).toEqual([
    ["one", "done"],
    ["one!", "done"],
  ]);
  await ask(plane, conv, "two");
  await until("the next answer", () => socket.read.some(({ event }) => event?.run_finished), { on: socket });
});

test("a run whose log is lost continues in a new one, and readers lose nothing", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane, log } = await servers.start({ engine: engine.factory });
  const conv = convId();
  const live = new Socket();
  await plane.attach(ada, conv, live, { kind: "now" });
  await plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(log, conv)));
  await log.delete(`chat:${conv}`);
  await until("the socket is to connect again", () => live.ended, { on: live });
  expect(live.ended).toMatchObject({ code: "unavailable" });
  engine.release("one");
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  expect(textsOf((await plane.state(ada, conv)).messages)).toEqual([
    ["one", "done"],
    ["one: done", "done"],
  ]);
  await plane.chat(ada, { convId: conv, message: "two" });
  await until("the next run", () => engine.started.includes("two"));
  engine.release("two");
});

test("stores a lost server's answer as far as its log has it, and fails it with the run", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const clock = new ManualClock(Date.now());
  const gone = await servers.start({ engine: engine.factory, clock, leaseMs: 200 });
  const conv = convId();
  const { run_id = "" } = await gone.plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(gone.log, conv)));
  expect(await stored(servers, conv)).toHaveLength(1);
  const other = await servers.start({ engine: quick, leaseMs: 1_000 });
  await until("the end", () => endOf(other.log, conv, run_id));
  await until("the record", async () => (await other.plane.run(ada, conv))?.status === "failed");
  const state = await other.plane.state(ada, conv);
  expect(textsOf(state.messages)).toEqual([
    ["one", "done"],
    ["one: ", "failed"],
  ]);
  expect(state.last_run).toMatchObject({ run_id, status: "failed", error: { code: "server_lost" } });
  // The paused server wakes up: its messages are not its own any more.
  const before = await stored(servers, conv);
  engine.release("one");
  await until("the answer is dropped", async () => {
    await clock.advance(10_000);
    const scraped = await gone.context.telemetry.scrape();
    return scraped.includes('khala_conversation_runs_total{outcome="lost"} 1');
  });
  expect(await stored(servers, conv)).toEqual(before);
});

test("ends a queued run that started in a new log there when its server is lost", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const first = await servers.start({ engine: engine.factory, leaseMs: 600_000 });
  const conv = convId();
  await first.plane.chat(ada, { convId: conv, message: "one" });
  const { run_id = "" } = await first.plane.chat(ada, { convId: conv, message: "two", policy: "queue" });
  await first.log.delete(`chat:${conv}`);
  engine.release("one");
  await until("its start", async () => answerOf(await eventsOf(first.log, conv)).includes("two: "));
  await servers.database.query({ text: "UPDATE runtime.conversations SET lease_until = now()" });
  const other = await servers.start({ engine: quick, leaseMs: 600_000 });
  const end = await until("the end", () => endOf(other.log, conv, run_id));
  expect(end).toMatchObject({ run_failed: { code: "server_lost" } });
});

test("deleting a conversation deletes its messages, runs and keys", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: quick });
  const conv = convId();
  await plane.chat(ada, { convId: conv, message: "one", idempotencyKey: "key" });
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  await plane.remove(ada, conv);
  for (const table of ["messages", "conversation_runs", "conversations", "files"])
    expect(
      await servers.database.query({
        text: `SELECT FROM runtime.${table} WHERE conv_id = $1`,
        values: [conv],
      }),
    ).toEqual([]);
  const again = await plane.chat(ada, { convId: conv, message: "new", idempotencyKey: "key" });
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  expect(textsOf((await plane.state(ada, conv)).messages)).toEqual([
    ["new", "done"],
    ["new!", "done"],
  ]);
  expect(again.run_id).toBeDefined();
});

test("followers of a log that replaces a lost one read again what a run stored before it continues there", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane, log } = await servers.start({ engine: engine.factory });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "one" });
  await until("a word", async () => answerOf(await eventsOf(log, conv)));
  await log.delete(`chat:${conv}`);
  // It reads the new log from now on, and the table does not have the word yet.
  expect((await plane.state(ada, conv)).messages).toHaveLength(1);
  engine.release("one");
  await until("the end", () => endOf(log, conv, run_id!));
  const [first, second] = await eventsOf(log, conv);
  expect([first!.event, second!.event]).toEqual([
    { branch_changed: { reload: true } },
    { text_delta: { message_id: expect.any(String), text: "done" } },
  ]);
});
