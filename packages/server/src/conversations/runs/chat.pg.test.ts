import { randomUUID } from "node:crypto";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { parseCursor } from "../log/cursor.ts";
import type { ChatCommand } from "../plane.ts";
import { answerOf, endOf, engineOf, eventsOf, GatedEngine, kindsOf, Servers } from "../test_support.ts";

const ada = testViewer();
const convId = () => `conv-${randomUUID()}`;
const echo = engineOf(async function* ({ message }) {
  for (const word of message.split(" ")) yield { text_delta: { text: `${word} ` } };
});
const code = (of: string) => expect.objectContaining({ code: of });

test("accepts a message once its run is durable, with the cursor before it; the log has the whole run", async () => {
  await using servers = await Servers.open();
  const { plane, log, reported } = await servers.start({ engine: echo });
  const conv = convId();
  const answer = await plane.chat(ada, { convId: conv, message: "good morning" });
  expect(answer.conv_id).toBe(conv);
  const runId = answer.run_id!;
  expect((await kindsOf(log, conv)).slice(0, 2)).toEqual(["run_started", "message"]);
  await until("the end", () => endOf(log, conv, runId));
  const events = await eventsOf(log, conv);
  expect(answerOf(events)).toBe("good morning ");
  expect(events.at(-1)!.event).toHaveProperty("run_finished");
  expect(events.map(({ runId: of }) => of)).toEqual(events.map(() => runId));
  const cursor = parseCursor(answer.cursor!, "cursor");
  expect(events[0]!.seq).toBe(cursor.seq + 1n);
  const page = await log.read(`chat:${conv}`, cursor, { entries: 1, bytes: 1_000 });
  expect(page!.entries[0]!.data).toContain("run_started");
  await until("the authority's events", () => reported.length === 2);
  expect(reported).toEqual([`${runId} run.started`, `${runId} run.completed`]);
  await until("the record", async () => (await plane.run(ada, conv))?.status === "finished");
});

test("the second run's cursor is after the first one's end", async () => {
  await using servers = await Servers.open();
  const { plane, log } = await servers.start({ engine: echo });
  const conv = convId();
  const first = await plane.chat(ada, { convId: conv, message: "one" });
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  const before = (await eventsOf(log, conv)).length;
  const second = await plane.chat(ada, { convId: conv, message: "two" });
  expect(second.run_id).not.toBe(first.run_id);
  expect(parseCursor(second.cursor!, "cursor").seq).toBe(BigInt(before));
});

test("the same key gets the same answer and starts one run: later, concurrently, and on another server", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const a = await servers.start({ engine: engine.factory });
  const b = await servers.start({ engine: engine.factory });
  const conv = convId();
  const command = { convId: conv, message: "hello", idempotencyKey: "k1" };
  const answers = await Promise.all(
    Array.from({ length: 10 }, (_, i) => (i % 2 ? a : b).plane.chat(ada, command)),
  );
  for (const answer of answers) expect(answer).toEqual(answers[0]);
  engine.release("hello");
  await until("the end", async () => (await a.plane.run(ada, conv))?.status === "finished");
  expect(await b.plane.chat(ada, command)).toEqual(answers[0]);
  expect(engine.started).toEqual(["hello"]);
  expect((await kindsOf(a.log, conv)).filter((kind) => kind === "run_started")).toHaveLength(1);
});

test("reject: a busy conversation answers 409 with its active run", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane } = await servers.start({ engine: engine.factory });
  const conv = convId();
  const first = await plane.chat(ada, { convId: conv, message: "one" });
  const refused = await plane.chat(ada, { convId: conv, message: "two" }).catch((error) => error);
  expect(refused).toMatchObject({ code: "conversation_busy", meaning: { status: 409, retryable: true } });
  expect(refused.message).toContain(first.run_id);
});

test("queue: runs wait in order, up to a limit, and start one after the other", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane, log } = await servers.start({ engine: engine.factory, queueLimit: 2 });
  const conv = convId();
  const say = (message: string) => plane.chat(ada, { convId: conv, message, policy: "queue" });
  const runs = [await say("one"), await say("two"), await say("three")];
  await expect(say("four")).rejects.toThrow(code("limit_exceeded"));
  for (const message of ["one", "two", "three"]) {
    await until(`${message} to run`, () => engine.started.includes(message));
    expect(engine.started.at(-1)).toBe(message);
    engine.release(message);
  }
  await until("the last end", () => endOf(log, conv, runs[2]!.run_id!));
  const events = await eventsOf(log, conv);
  expect(events.filter(({ event }) => event.run_started).map(({ runId }) => runId)).toEqual(
    runs.map(({ run_id }) => run_id),
  );
  expect(events.filter(({ event }) => event.message).map(({ event }) => event.message!.text)).toEqual([
    "one",
    "two",
    "three",
  ]);
  for (const { run_id, cursor } of runs) {
    const start = events.find(({ runId }) => runId === run_id)!;
    expect(start.seq).toBeGreaterThan(parseCursor(cursor!, "cursor").seq);
  }
});

test("a queued message is idempotent as well", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane } = await servers.start({ engine: engine.factory });
  const conv = convId();
  await plane.chat(ada, { convId: conv, message: "one" });
  const command = { convId: conv, message: "two", policy: "queue", idempotencyKey: "k" } as const;
  const [first, second] = await Promise.all([plane.chat(ada, command), plane.chat(ada, command)]);
  expect(second).toEqual(first);
  expect(await plane.chat(ada, command)).toEqual(first);
});

test("interrupt: stops the active run, and starts the new one before the queued ones", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane, log } = await servers.start({ engine: engine.factory });
  const conv = convId();
  const first = await plane.chat(ada, { convId: conv, message: "one" });
  await until("the first to run", () => engine.started.includes("one"));
  await plane.chat(ada, { convId: conv, message: "two", policy: "queue" });
  await plane.chat(ada, { convId: conv, message: "three", policy: "interrupt" });
  expect(await until("its end", () => endOf(log, conv, first.run_id!))).toEqual({
    run_stopped: { reason: "interrupted" },
  });
  await until("three to run", () => engine.started.length === 2);
  engine.release("three");
  await until("two to run", () => engine.started.length === 3);
  engine.release("two");
  expect(engine.started).toEqual(["one", "three", "two"]);
});

test("answers for another subject's conversation exactly as for a missing one", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: echo });
  const conv = convId();
  const missing = convId();
  await plane.chat(ada, { convId: conv, message: "mine" });
  for (const caller of [testViewer({ subject: "bob" }), testViewer({ scopes: ["chat:nothing"] })]) {
    const calls = (of: string) => [
      () => plane.stopRun(caller, of),
      () => plane.state(caller, of),
      () => plane.run(caller, of),
      () => plane.remove(caller, of),
    ];
    const denied = [() => plane.chat(caller, { convId: conv, message: "yours" }), ...calls(conv)];
    for (const call of denied) {
      const error = await call().then(
        () => expect.fail("it was answered"),
        (reason) => reason,
      );
      expect(error).toMatchObject({ code: "not_found" });
      expect(error.message).toBe(`There is no conversation "${conv}", or you may not see it.`);
    }
    for (const call of calls(missing))
      await expect(call()).rejects.toThrow(`There is no conversation "${missing}", or you may not see it.`);
  }
});

test("refuses an invalid message, id or key with the field", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: echo });
  const refused: [ChatCommand, string][] = [
    [{ convId: "a b", message: "x" }, "conv_id"],
    [{ convId: "c", message: "  " }, "message"],
    [{ convId: "c", message: "a\0" }, "message"],
    [{ convId: "c", message: "half of a pair: \ud800" }, "message"],
    [{ convId: "c", message: "x", idempotencyKey: "k".repeat(201) }, "idempotency_key"],
    [{ convId: "c", message: "x", idempotencyKey: "" }, "idempotency_key"],
    [{ convId: "c", message: "x", messageId: "a\nb" }, "message_id"],
  ];
  for (const [command, field] of refused)
    await expect(plane.chat(ada, command)).rejects.toMatchObject({
      code: "invalid_request",
      details: { field },
    });
  const long = plane.chat(ada, { convId: convId(), message: "x".repeat(200_000) });
  await expect(long).rejects.toThrow(code("payload_too_large"));
});

test("when the log cannot be written, throws the error, frees the key, and accepts the next message", async () => {
  await using servers = await Servers.open();
  let broken = true;
  const began = Date.now();
  const { plane, log } = await servers.start({
    engine: echo,
    wrapLog: (real) => ({
      ...real,
      append: (...args) => (broken ? Promise.reject(new RangeError("no log")) : real.append(...args)),
    }),
    leaseMs: 3_600_000,
    runTimeoutMs: 60_000_000,
    // The time for retries passes at once.
    clock: { now: () => began + (Date.now() - began) * 1_000, after: leap },
  });
  const conv = convId();
  const command = { convId: conv, message: "hello", idempotencyKey: "k" };
  await expect(plane.chat(ada, command)).rejects.toThrow("no log");
  broken = false;
  const answer = await plane.chat(ada, command);
  await until("the end", () => endOf(log, conv, answer.run_id!));
  expect(await kindsOf(log, conv)).toEqual([
    "status",
    "run_started",
    "message",
    "text_delta",
    "run_finished",
  ]);
});

/** Timers of a clock that runs a thousand times as fast. */
function leap(ms: number, fn: () => void): () => void {
  const timer = setTimeout(fn, ms / 1_000);
  return () => clearTimeout(timer);
}

test("accepts a reply sent at the moment a run ends", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: echo });
  const conv = convId();
  for (let turn = 0; turn < 20; turn++) {
    const { cursor } = await plane.chat(ada, { convId: conv, message: `turn ${turn}` });
    for await (const { event } of plane.follow(ada, conv, cursor!, AbortSignal.timeout(30_000)))
      if (event.run_finished) break;
  }
});
