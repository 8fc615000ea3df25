import { randomUUID } from "node:crypto";
import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { EngineFactory, Turn } from "../engines/engine.ts";
import { parseCursor } from "../log/cursor.ts";
import type { Log } from "../log/log.ts";
import type { ChatCommand } from "../plane.ts";
import { endOf, engineOf, eventsOf, GatedEngine, Servers, type TestServer } from "../test_support.ts";
import { messagesOf } from "../timeline/transcript.ts";

const ada = testViewer();
const newConv = () => `conv-${randomUUID()}`;

/** Answers with the number of the turn. */
class Counter {
  readonly turns: Turn[] = [];
  readonly factory: EngineFactory = engineOf((turn) => this.#run(turn));

  async *#run(turn: Turn) {
    this.turns.push(turn);
    yield { text_delta: { text: `${turn.message} ${this.turns.length}` } };
  }
}

const textOf = ({ parts = [] }: TranscriptMessageJson) => parts.map(({ text = "" }) => text).join("");
const idOf = (message: TranscriptMessageJson | undefined) => message!.message_id!;

/** A conversation on a server, and the messages its log gives a follower from the beginning. */
class Talk {
  readonly conv = newConv();
  readonly server: TestServer;

  constructor(server: TestServer) {
    this.server = server;
  }

  /** Sends, and waits for the end. Returns the messages, which are the same for who follows and for who comes. */
  async ask(message: string, more: Partial<ChatCommand> = {}): Promise<TranscriptMessageJson[]> {
    const { run_id = "" } = await this.server.plane.chat(ada, { convId: this.conv, message, ...more });
    await this.ended(run_id);
    return this.messages();
  }

  async ended(runId: string): Promise<void> {
    const { plane } = this.server;
    await until("the end", async () => {
      const { run, last_run } = await plane.state(ada, this.conv);
      return !run && last_run?.run_id === runId;
    });
  }

  async choose(messageId: string): Promise<TranscriptMessageJson[]> {
    await this.server.plane.chooseBranch(ada, this.conv, messageId);
    return this.messages();
  }

  async messages(): Promise<TranscriptMessageJson[]> {
    const { plane, log } = this.server;
    for (;;) {
      const { messages = [], cursor = "" } = await plane.state(ada, this.conv);
      const events = await eventsOf(log, this.conv);
      // An answer may grow between the two.
      if (events.at(-1)?.seq !== parseCursor(cursor, "cursor").seq) continue;
      expect(messagesOf(events)).toEqual(messages);
      return messages;
    }
  }
}

test("a regenerated answer is a sibling of the first, and the engine gets the question once", async () => {
  await using servers = await Servers.open();
  const engine = new Counter();
  const talk = new Talk(await servers.start({ engine: engine.factory }));
  await talk.ask("Hi");
  const [, , question, first] = await talk.ask("Why?");
  const after = await talk.ask("", { regenerate: idOf(first) });
  expect(after.map(textOf)).toEqual(["Hi", "Hi 1", "Why?", "Why? 3"]);
  expect(after[2]).toMatchObject({ message_id: idOf(question), author: ada.subject });
  expect(after[3]!.siblings).toEqual([idOf(first), idOf(after[3])]);
  const { message, parts, history } = engine.turns.at(-1)!;
  expect(message).toBe("Why?");
  expect(parts).toEqual([{ text: "Why?" }]);
  expect(history.map(textOf)).toEqual(["Hi", "Hi 1"]);
  // By the question, too.
  const third = await talk.ask("", { regenerate: idOf(question) });
  expect(third.at(-1)!.siblings).toEqual([idOf(first), idOf(after[3]), idOf(third.at(-1))]);
  const next = await talk.ask("And?");
  expect(engine.turns.at(-1)!.history.map(textOf)).toEqual(["Hi", "Hi 1", "Why?", "Why? 4"]);
  expect(next.map(textOf)).toEqual(["Hi", "Hi 1", "Why?", "Why? 4", "And?", "And? 5"]);
});

test("an edit is a sibling of the question, also of the first one, and the old branch can be read", async () => {
  await using servers = await Servers.open();
  const engine = new Counter();
  const talk = new Talk(await servers.start({ engine: engine.factory }));
  const [first, answer] = await talk.ask("Hi");
  const edited = await talk.ask("Hello", { edit: idOf(first) });
  expect(edited.map(textOf)).toEqual(["Hello", "Hello 2"]);
  expect(edited[0]!.siblings).toEqual([idOf(first), idOf(edited[0])]);
  expect(edited[0]!.parent_id).toBeUndefined();
  expect(engine.turns.at(-1)!.history).toEqual([]);
  const parts = [{ text: "Hey" }, { text: "there" }];
  const again = await talk.ask("Hey\nthere", { edit: idOf(edited[0]), parts });
  expect(again[0]!.siblings).toHaveLength(3);
  expect(engine.turns.at(-1)!.parts).toEqual(parts);
  const { messages } = await talk.server.plane.messages(ada, talk.conv, {
    before: undefined,
    leaf: idOf(answer),
    limit: 10,
  });
  expect(messages.map(textOf)).toEqual(["Hi", "Hi 1"]);
});

test("choosing a message activates its branch down to the newest message, for every reader", async () => {
  await using servers = await Servers.open();
  const talk = new Talk(await servers.start({ engine: new Counter().factory }));
  const [hi] = await talk.ask("Hi");
  const [, , why] = await talk.ask("Why?");
  const other = await talk.ask("Hello", { edit: idOf(hi) });
  expect((await talk.choose(idOf(hi))).map(textOf)).toEqual(["Hi", "Hi 1", "Why?", "Why? 2"]);
  expect((await talk.choose(idOf(other[1]))).map(textOf)).toEqual(["Hello", "Hello 3"]);
  await talk.choose(idOf(why));
  const events = (await eventsOf(talk.server.log, talk.conv)).length;
  // It is on the active branch already: nothing changes.
  expect((await talk.choose(idOf(hi))).map(textOf)).toEqual(["Hi", "Hi 1", "Why?", "Why? 2"]);
  expect(await eventsOf(talk.server.log, talk.conv)).toHaveLength(events);
  expect((await talk.ask("And?")).map(textOf)).toEqual(["Hi", "Hi 1", "Why?", "Why? 2", "And?", "And? 4"]);
});

test("the event of a long branch tells readers to load it again", async () => {
  await using servers = await Servers.open();
  const talk = new Talk(await servers.start({ engine: new Counter().factory }));
  const [hi] = await talk.ask("x".repeat(90_000));
  const long = await talk.ask("Why?");
  const short = await talk.ask("Hello", { edit: idOf(hi) });
  const { plane, log } = talk.server;
  await plane.chooseBranch(ada, talk.conv, idOf(long[2]));
  expect((await eventsOf(log, talk.conv)).at(-1)!.event).toEqual({
    branch_changed: { parent_id: "", reload: true },
  });
  expect((await plane.state(ada, talk.conv)).messages).toEqual([
    { ...long[0]!, siblings: [idOf(hi), idOf(short[0])] },
    ...long.slice(1),
  ]);
});

test("refuses ids that are missing or of the wrong kind, with their field", async () => {
  await using servers = await Servers.open();
  const talk = new Talk(await servers.start({ engine: new Counter().factory }));
  const [question, answer] = await talk.ask("Hi");
  const { plane } = talk.server;
  const refused = (command: Partial<ChatCommand>) =>
    plane.chat(ada, { convId: talk.conv, message: "", ...command });
  await expect(refused({ regenerate: "none" })).rejects.toMatchObject({
    code: "not_found",
    details: { field: "regenerate" },
  });
  await expect(refused({ message: "x", edit: "none" })).rejects.toMatchObject({
    code: "not_found",
    details: { field: "edit" },
  });
  await expect(refused({ message: "x", edit: idOf(answer) })).rejects.toMatchObject({
    code: "invalid_request",
    details: { field: "edit" },
  });
  await expect(plane.chooseBranch(ada, talk.conv, "none")).rejects.toMatchObject({
    code: "not_found",
    details: { field: "message_id" },
  });
  await expect(
    plane.chooseBranch(testViewer({ subject: "eve" }), talk.conv, idOf(question)),
  ).rejects.toMatchObject({ code: "not_found" });
  await servers.database.query({
    text: `INSERT INTO runtime.messages (org_id, conv_id, message_id, role, parts, status)
      SELECT org_id, conv_id, 'm' || i, 'user', '[]', 'done' FROM runtime.conversations, generate_series(1, 100) i
      WHERE conv_id = $1`,
    values: [talk.conv],
  });
  await expect(refused({ message: "x", edit: idOf(question) })).rejects.toMatchObject({
    code: "invalid_request",
    details: { field: "edit" },
  });
});

test("an idempotency key belongs to the regenerated message, and starts one run", async () => {
  await using servers = await Servers.open();
  const engine = new Counter();
  const talk = new Talk(await servers.start({ engine: engine.factory }));
  const [question, answer] = await talk.ask("Hi");
  const again = { convId: talk.conv, message: "", regenerate: idOf(answer), idempotencyKey: "k" };
  const [a, b] = await Promise.all([talk.server.plane.chat(ada, again), talk.server.plane.chat(ada, again)]);
  expect(b).toEqual(a);
  expect(a.message_id).toBe(idOf(question));
  await talk.ended(a.run_id!);
  expect(engine.turns).toHaveLength(2);
  await expect(talk.server.plane.chat(ada, { ...again, regenerate: idOf(question) })).rejects.toMatchObject({
    code: "idempotency_conflict",
  });
});

test("refuses to choose a branch during a run, and queues a regeneration, which cannot be edited", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const talk = new Talk(await servers.start({ engine: engine.factory }));
  const { plane } = talk.server;
  const begin = async (message: string, more: Partial<ChatCommand> = {}) => {
    const { run_id = "" } = await plane.chat(ada, { convId: talk.conv, message, ...more });
    return run_id;
  };
  const started = (count: number) => until("it runs", () => engine.started.length === count);
  const one = await begin("one");
  await started(1);
  engine.release("one");
  await talk.ended(one);
  const [question, answer] = await talk.messages();
  const edit = await begin("two", { edit: idOf(question) });
  await started(2);
  await expect(plane.chooseBranch(ada, talk.conv, idOf(answer))).rejects.toMatchObject({
    code: "conversation_busy",
  });
  const [two] = await talk.messages();
  await plane.chooseBranch(ada, talk.conv, idOf(two));
  await expect(
    plane.chat(ada, { convId: talk.conv, message: "", regenerate: idOf(answer) }),
  ).rejects.toMatchObject({
    code: "conversation_busy",
  });
  const waiting = await begin("", { regenerate: idOf(answer), policy: "queue" });
  const { queued } = await plane.queue(ada, talk.conv);
  expect(queued).toMatchObject([{ run_id: waiting, regenerate: idOf(answer), parts: [{ text: "one" }] }]);
  await expect(plane.editQueued(ada, talk.conv, waiting, { message: "x" })).rejects.toMatchObject({
    code: "invalid_request",
  });
  engine.release("two");
  await started(3);
  engine.release("one");
  await talk.ended(waiting);
  const messages = await talk.messages();
  expect(messages.map(textOf)).toEqual(["one", "one: done"]);
  expect(messages.map(({ siblings }) => siblings)).toEqual([
    [idOf(question), idOf(two)],
    [idOf(answer), idOf(messages[1])],
  ]);
  expect(edit).not.toBe(waiting);
});

test("retrying a failed run keeps its answer as a sibling", async () => {
  await using servers = await Servers.open();
  let fails = true;
  const engine = engineOf(async function* ({ message }) {
    yield { text_delta: { text: `${message}!` } };
    if (fails) throw new Error("secret");
  });
  const talk = new Talk(await servers.start({ engine }));
  await talk.ask("Hi", { idempotencyKey: "k" });
  fails = false;
  const messages = await talk.ask("Hi", { idempotencyKey: "k" });
  expect(messages.map(({ status }) => status)).toEqual(["done", "done"]);
  expect(messages[1]!.siblings).toHaveLength(2);
});

test("an answer stopped before its first word leaves its question, and its siblings to the next message", async () => {
  await using servers = await Servers.open();
  let waits = false;
  const engine = engineOf(async function* ({ message }, signal) {
    if (waits) return new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    yield { text_delta: { text: `${message}!` } };
  });
  const talk = new Talk(await servers.start({ engine }));
  const [question, answer] = await talk.ask("Hi");
  waits = true;
  const { plane } = talk.server;
  const { run_id = "" } = await plane.chat(ada, { convId: talk.conv, message: "", regenerate: idOf(answer) });
  await plane.stopRun(ada, talk.conv);
  await talk.ended(run_id);
  expect(await talk.messages()).toMatchObject([{ message_id: idOf(question), replies: [idOf(answer)] }]);
  waits = false;
  const messages = await talk.ask("And?");
  expect(messages.map(textOf)).toEqual(["Hi", "And?", "And?!"]);
  expect(messages[1]!.siblings).toEqual([idOf(answer), idOf(messages[1])]);
});

test("a fork whose start cannot be written leaves the branch unchanged", async () => {
  await using servers = await Servers.open();
  let broken = false;
  const server = await servers.start({
    engine: new Counter().factory,
    wrapLog: (log): Log => ({
      ...log,
      open: (stream, generation) => {
        if (broken) throw Object.assign(new Error("The log is away."), { code: "x" });
        return log.open(stream, generation);
      },
    }),
  });
  const talk = new Talk(server);
  const before = await talk.ask("Hi");
  broken = true;
  for (const more of [{ regenerate: idOf(before[1]) }, { message: "Hello", edit: idOf(before[0]) }])
    await expect(server.plane.chat(ada, { convId: talk.conv, message: "", ...more })).rejects.toThrow();
  broken = false;
  const { messages = [] } = await server.plane.state(ada, talk.conv);
  const withoutRuns = (all: readonly TranscriptMessageJson[]) =>
    all.map(({ run_id: _, ...message }) => message);
  expect(withoutRuns(messages)).toEqual(withoutRuns(before));
  expect((await talk.ask("", { regenerate: idOf(before[1]) })).map(textOf)).toEqual(["Hi", "Hi 2"]);
});

test("the next server announces a chosen branch that its server did not announce, before anything else", async () => {
  await using servers = await Servers.open();
  let broken = false;
  const server = await servers.start({
    engine: new Counter().factory,
    wrapLog: (log): Log => ({
      ...log,
      append: (stream, entries, options) => {
        if (broken && entries.some((entry) => entry.includes("branch_changed")))
          throw new Error("The server is gone.");
        return log.append(stream, entries, options);
      },
    }),
  });
  const talk = new Talk(server);
  const [hi] = await talk.ask("Hi");
  await talk.ask("Hello", { edit: idOf(hi) });
  broken = true;
  await expect(server.plane.chooseBranch(ada, talk.conv, idOf(hi))).rejects.toThrow();
  broken = false;
  expect((await talk.ask("Why?")).map(textOf)).toEqual(["Hi", "Hi 1", "Why?", "Why? 3"]);
});

test("a warm and a cold reader see the same branch from the start of a regeneration", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const talk = new Talk(await servers.start({ engine: engine.factory }));
  const { plane } = talk.server;
  const { run_id = "" } = await plane.chat(ada, { convId: talk.conv, message: "one" });
  await until("it runs", () => engine.started.length === 1);
  engine.release("one");
  await talk.ended(run_id);
  const [, answer] = await talk.messages();
  const again = await plane.chat(ada, { convId: talk.conv, message: "", regenerate: idOf(answer) });
  await until("its words", async () => (await talk.messages()).length === 2);
  const cold = await servers.start({ engine: engine.factory });
  const messages = await talk.messages();
  expect((await cold.plane.state(ada, talk.conv)).messages).toEqual(messages);
  expect(messages[1]).toMatchObject({
    parts: [{ text: "one: " }],
    siblings: [idOf(answer), idOf(messages[1])],
  });
  engine.release("one");
  await talk.ended(again.run_id!);
  await talk.server.log.delete(`chat:${talk.conv}`);
  const last = (await cold.plane.state(ada, talk.conv)).messages!;
  expect(last.map(textOf)).toEqual(["one", "one: done"]);
  expect(last[1]!.siblings).toHaveLength(2);
});

test("a regeneration whose server is lost resumes on its own branch", async () => {
  await using servers = await Servers.open();
  let hangs = false;
  const engine: EngineFactory = () => ({
    resumable: true,
    async *run({ message }, signal) {
      yield { text_delta: { text: `${message}… ` } };
      if (hangs) await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
      yield { text_delta: { text: "done" } };
    },
  });
  const clock = new ManualClock(Date.now());
  const gone = new Talk(await servers.start({ engine, clock, leaseMs: 500 }));
  const [, answer] = await gone.ask("Hi");
  hangs = true;
  const { run_id = "" } = await gone.server.plane.chat(ada, {
    convId: gone.conv,
    message: "",
    regenerate: idOf(answer),
  });
  await until("a word", async () => (await gone.messages()).length === 2);
  hangs = false;
  const other = await servers.start({ engine, leaseMs: 60_000 });
  await until("the end", () => endOf(other.log, gone.conv, run_id));
  await until(
    "the record",
    async () => (await other.plane.run(ada, gone.conv, run_id))?.status === "finished",
  );
  const { messages = [] } = await other.plane.state(ada, gone.conv);
  expect(messages.map(textOf)).toEqual(["Hi", "Hi… done"]);
  expect(messages[1]!.siblings).toEqual([idOf(answer), idOf(messages[1])]);
  expect(messagesOf(await eventsOf(other.log, gone.conv))).toEqual(messages);
});

test.for(["queue", "interrupt"] as const)(
  "an answer can be regenerated with the policy %s as soon as its first word is shown",
  async (policy) => {
    await using servers = await Servers.open();
    const engine = new GatedEngine();
    const talk = new Talk(await servers.start({ engine: engine.factory }));
    const { plane, log } = talk.server;
    await plane.chat(ada, { convId: talk.conv, message: "Hi" });
    const [, answer] = await until("a word", async () => {
      const shown = messagesOf(await eventsOf(log, talk.conv));
      return shown.length === 2 && shown;
    });
    const again = { convId: talk.conv, message: "", regenerate: idOf(answer), policy };
    const { run_id = "" } = await plane.chat(ada, again);
    if (policy === "queue") engine.release("Hi");
    await until("the next answer", () => engine.started.length === 2);
    engine.release("Hi");
    await talk.ended(run_id);
    const messages = await talk.messages();
    expect(messages.map(textOf)).toEqual(["Hi", "Hi: done"]);
    expect(messages[1]!.siblings).toEqual([idOf(answer), idOf(messages[1])]);
    const [, first] = await talk.choose(idOf(answer));
    expect(textOf(first!)).toMatch(/^Hi: /);
    const unknown = plane.chat(ada, { ...again, regenerate: "nothing" });
    await expect(unknown).rejects.toMatchObject({ code: "not_found" });
  },
);

test("clients with their own ids can resend a message unchanged, edited or new", async () => {
  await using servers = await Servers.open();
  const engine = new Counter();
  const talk = new Talk(await servers.start({ engine: engine.factory }));
  const first = await talk.ask("Hi", { messageId: "q", resent: "regenerate" });
  expect(first.map(({ message_id }) => message_id)[0]).toBe("q");
  expect((await talk.ask("Hi", { messageId: "q", resent: "regenerate" })).map(textOf)).toEqual([
    "Hi",
    "Hi 2",
  ]);
  expect((await talk.ask("Hi", { messageId: "q", resent: "either" })).map(textOf)).toEqual(["Hi", "Hi 3"]);
  const edited = await talk.ask("Hello", { messageId: "q", resent: "either" });
  expect(edited[0]!.siblings).toEqual(["q", idOf(edited[0])]);
  // The client knows the edited message by the id of the first one.
  const again = await talk.ask("Hello", { messageId: "q", resent: "regenerate" });
  expect(again.map(textOf)).toEqual(["Hello", "Hello 5"]);
  expect(again[0]!.message_id).toBe(idOf(edited[0]));
  const same = await talk.ask("Hello", { messageId: "q", resent: "either" });
  expect(same[0]!.message_id).toBe(idOf(edited[0]));
  const more = await talk.ask("Hey", { messageId: "q", resent: "edit" });
  expect(more.map(textOf)).toEqual(["Hey", "Hey 7"]);
  expect(more[0]!.siblings).toHaveLength(3);
});
