import { randomUUID } from "node:crypto";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { Turn } from "../engines/engine.ts";
import { PublicError } from "../engines/public_error.ts";
import { answerOf, endOf, engineOf, eventsOf, GatedEngine, kindsOf, Servers } from "../test_support.ts";

const ada = testViewer();
const convId = () => `conv-${randomUUID()}`;
const never = engineOf(async function* (_, signal) {
  yield { text_delta: { text: "begun" } };
  await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
});

test("a run completes without any socket", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane, log } = await servers.start({ engine: engine.factory });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hello" });
  await until("the run", () => engine.started.length === 1);
  engine.release("hello");
  expect(await until("the end", () => endOf(log, conv, run_id!))).toHaveProperty("run_finished");
  expect(answerOf(await eventsOf(log, conv))).toBe("hello: done");
});

test("the engine gets the earlier messages as history, without the current one", async () => {
  await using servers = await Servers.open();
  const turns: Turn[] = [];
  const { plane } = await servers.start({
    engine: engineOf(async function* (turn) {
      turns.push(turn);
      yield { text_delta: { text: `answer to ${turn.message}` } };
    }),
  });
  const conv = convId();
  for (const message of ["one", "two"]) {
    await plane.chat(ada, { convId: conv, message });
    await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  }
  expect(turns[0]).toMatchObject({ org: "acme", subject: "ada", convId: conv, message: "one", history: [] });
  expect(turns[1]!.history.map(({ role, parts }) => [role, parts![0]!.text])).toEqual([
    ["user", "one"],
    ["assistant", "answer to one"],
  ]);
  expect(turns[1]!.message).toBe("two");
});

test("a stop ends the run and keeps its text, and the conversation accepts the next message", async () => {
  await using servers = await Servers.open();
  const { plane, log, reported } = await servers.start({ engine: never });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hello" });
  await until("some text", async () => answerOf(await eventsOf(log, conv)));
  expect(await plane.stopRun(ada, conv)).toEqual({ run_id, stopped: true });
  expect(await until("the end", () => endOf(log, conv, run_id!))).toEqual({
    run_stopped: { reason: "stopped" },
  });
  await until("the record", async () => (await plane.run(ada, conv))?.status === "stopped");
  expect(await plane.stopRun(ada, conv)).toEqual({ stopped: false });
  expect(answerOf(await eventsOf(log, conv))).toBe("begun");
  await until("the authority's events", () => reported.includes(`${run_id} run.stopped`));
  await plane.chat(ada, { convId: conv, message: "again" });
});

test("a message after a stop waits for the end of the stopped run", async () => {
  await using servers = await Servers.open();
  const end = Promise.withResolvers<void>();
  let looks = 0;
  const { plane, log } = await servers.start({
    engine: engineOf(async function* ({ message }) {
      yield { text_delta: { text: `to ${message}` } };
      if (message === "slow") await end.promise;
    }),
    wrapDatabase: (database) => ({
      ...database,
      interactive: (work) => database.interactive(work).finally(() => looks++),
    }),
  });
  const conv = convId();
  await plane.chat(ada, { convId: conv, message: "slow" });
  const asked = await until("some text", async () =>
    (await eventsOf(log, conv)).find(({ event }) => event.message),
  );
  await plane.stopRun(ada, conv);
  const before = looks;
  let refused: unknown;
  const next = plane.chat(ada, { convId: conv, regenerate: asked.event.message!.message_id!, message: "" });
  next.catch((error) => {
    refused = error;
  });
  await until("it has looked twice", () => looks > before + 1 || refused);
  end.resolve();
  expect(await next).toMatchObject({ message_id: asked.event.message!.message_id });
});

test.each([
  ["with a wakeup", true, 60_000],
  ["with the next renewal when the wakeup is lost", false, 6_000],
])("stops a run on another server %s", async (_, wakeupsOn, leaseMs) => {
  await using servers = await Servers.open();
  servers.wakeupsOn = wakeupsOn;
  const a = await servers.start({ engine: never, leaseMs });
  const b = await servers.start({ engine: never, leaseMs });
  const conv = convId();
  const { run_id } = await a.plane.chat(ada, { convId: conv, message: "hello" });
  await until("some text", async () => answerOf(await eventsOf(a.log, conv)));
  expect(await b.plane.stopRun(ada, conv)).toEqual({ run_id, stopped: true });
  const end = await until("the end", () => endOf(b.log, conv, run_id!));
  expect(end).toEqual({ run_stopped: { reason: "stopped" } });
});

test("an interrupt on another server stops the run, and its server starts the next one", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const a = await servers.start({ engine: engine.factory });
  const b = await servers.start({ engine: never });
  const conv = convId();
  const first = await a.plane.chat(ada, { convId: conv, message: "one" });
  await until("it runs", () => engine.started.length === 1);
  const second = await b.plane.chat(ada, { convId: conv, message: "two", policy: "interrupt" });
  await until("the second to run", () => engine.started.includes("two"));
  engine.release("two");
  await until("its end", () => endOf(a.log, conv, second.run_id!));
  expect(await endOf(a.log, conv, first.run_id!)).toEqual({ run_stopped: { reason: "interrupted" } });
});

test("an engine that throws ends its run with a message and an error id; operators get the exception", async () => {
  await using servers = await Servers.open();
  const { plane, log, reported } = await servers.start({
    engine: engineOf(async function* () {
      yield { text_delta: { text: "so far" } };
      throw new Error("the model is overloaded\n    at secret.ts:1");
    }),
  });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hello" });
  const { run_failed } = await until("the end", () => endOf(log, conv, run_id!));
  const error_id = run_failed?.error_id;
  expect(run_failed).toEqual({
    code: "engine_failed",
    message: `The answer could not be completed (error ${error_id}). Send the message again.`,
    error_id,
  });
  expect(await kindsOf(log, conv)).toEqual(["run_started", "message", "text_delta", "run_failed"]);
  await until("the authority's events", () => reported.includes(`${run_id} run.failed`));
  await until("the record", async () => (await plane.run(ada, conv))?.status === "failed");
  expect((await plane.run(ada, conv))?.error).toEqual(run_failed);
  const { runs } = await plane.failedRuns(ada.org, { after: "", limit: 10, errorId: error_id });
  expect(runs).toMatchObject([{ error_id, run_id, conv_id: conv, subject: "ada", ...run_failed }]);
  expect(runs[0]!.detail).toContain("the model is overloaded");
  expect((await plane.failedRuns("other", { after: "", limit: 10, errorId: error_id })).runs).toEqual([]);
  await plane.chat(ada, { convId: conv, message: "again" });
});

test("shows a PublicError unchanged, with its code", async () => {
  await using servers = await Servers.open();
  const { plane, log } = await servers.start({
    // biome-ignore lint/correctness/useYield: it has nothing to say.
    engine: engineOf(async function* () {
      throw new PublicError("Your plan has no model.", { code: "refused", cause: new Error("hunter2") });
    }),
  });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hello" });
  const { run_failed } = await until("the end", () => endOf(log, conv, run_id!));
  expect(run_failed).toEqual({
    code: "refused",
    message: "Your plan has no model.",
    error_id: expect.any(String),
  });
  await until("the record", async () => (await plane.run(ada, conv))?.status === "failed");
  const { runs } = await plane.failedRuns(ada.org, { after: "", limit: 10, errorId: undefined });
  expect(runs[0]!.detail).toMatch(/no model.*Caused by: Error: hunter2/s);
});

test("an engine that cannot be made, and one with an unknown event, fail the run with engine_failed", async () => {
  await using servers = await Servers.open();
  const factories = [
    () => {
      throw new Error("no key is set");
    },
    engineOf(async function* () {
      yield { dance: {} } as object;
    }),
  ];
  for (const engine of factories) {
    const { plane, log } = await servers.start({ engine });
    const conv = convId();
    const { run_id } = await plane.chat(ada, { convId: conv, message: "hello" });
    const end = await until("the end", () => endOf(log, conv, run_id!));
    expect(end.run_failed?.code).toBe("engine_failed");
  }
});

test("ends a run that takes too long with a timeout", async () => {
  await using servers = await Servers.open();
  const { plane, log } = await servers.start({ engine: never, runTimeoutMs: 50 });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hello" });
  const end = await until("the end", () => endOf(log, conv, run_id!));
  expect(end.run_failed?.code).toBe("timeout");
  expect((await kindsOf(log, conv)).filter((kind) => kind.startsWith("run_"))).toHaveLength(2);
});

test.each([
  ["that says too much", "x".repeat(1_000), 100],
  ["that says too much at once", "x".repeat(300_000), 3],
])("an engine %s ends its run with too_large, and the text before stays", async (_, text, times) => {
  await using servers = await Servers.open();
  let ended = false;
  const { plane, log } = await servers.start({
    runMaxBytes: 50_000 + (times === 3 ? 1_000_000 : 0),
    engine: engineOf(async function* () {
      try {
        yield { text_delta: { text: "first" } };
        // A long delta is split; a status is not.
        for (let i = 0; i < times; i++) yield times === 3 ? { status: { text } } : { text_delta: { text } };
      } finally {
        ended = true;
      }
    }),
  });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hello" });
  const end = await until("the end", () => endOf(log, conv, run_id!));
  expect(end.run_failed?.code).toBe("too_large");
  expect(ended).toBe(true);
  const events = await eventsOf(log, conv);
  expect(answerOf(events)).toMatch(/^first/);
  expect(events.at(-1)!.event).toHaveProperty("run_failed");
});

test("writes the engine's reason and usage to the log", async () => {
  await using servers = await Servers.open();
  const { plane, log } = await servers.start({
    engine: engineOf(async function* () {
      yield { run_finished: { reason: "length", usage: { output_tokens: 7 } } };
    }),
  });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hello" });
  expect(await until("the end", () => endOf(log, conv, run_id!))).toEqual({
    run_finished: { reason: "length", usage: { output_tokens: 7 } },
  });
});

test("tokens do not wait for the log: the engine ends while the first append is still running", async () => {
  await using servers = await Servers.open();
  const log = Promise.withResolvers<void>();
  let done = false;
  let appends = 0;
  const server = await servers.start({
    engine: engineOf(async function* () {
      for (let i = 0; i < 1_000; i++) yield { text_delta: { text: `${i} ` } };
      done = true;
    }),
    wrapLog: (real) => ({
      ...real,
      async append(...args) {
        if (args[1].some((entry) => entry.includes("text_delta"))) {
          appends++;
          await log.promise;
        }
        return real.append(...args);
      },
    }),
  });
  const conv = convId();
  const { run_id } = await server.plane.chat(ada, { convId: conv, message: "count" });
  await until("the engine is done", () => done);
  expect(appends).toBe(1);
  log.resolve();
  await until("the end", () => endOf(server.log, conv, run_id!));
  const said = Array.from({ length: 1_000 }, (_, i) => `${i} `).join("");
  expect(answerOf(await eventsOf(server.log, conv))).toBe(said);
});

test("an append whose answer is lost is neither repeated nor left out", async () => {
  await using servers = await Servers.open();
  let count = 0;
  const { plane, log } = await servers.start({
    engine: engineOf(async function* () {
      for (let i = 0; i < 40; i++) yield { text_delta: { text: `${i} `, message_id: `m${i % 2}` } };
    }),
    wrapLog: (real) => ({
      ...real,
      async append(...args) {
        count++;
        // Every second one fails: before it is written, or after.
        if (count % 4 === 1) throw new Error("the line broke before");
        const bounds = await real.append(...args);
        if (count % 4 === 3) throw new Error("the line broke after");
        return bounds;
      },
    }),
  });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hello" });
  await until("the end", () => endOf(log, conv, run_id!));
  const said = Array.from({ length: 40 }, (_, i) => `${i} `);
  expect(answerOf(await eventsOf(log, conv))).toBe(said.join(""));
  expect(count).toBeGreaterThan(3);
});

test("retries a failing event log, which never harms the run", async () => {
  await using servers = await Servers.open();
  const reported: string[] = [];
  let failures = 0;
  const { plane, log } = await servers.start({
    engine: engineOf(async function* () {
      yield { text_delta: { text: "fine" } };
    }),
    runs: {
      async append(_, type) {
        if (failures++ < 2) throw new Error("not now");
        reported.push(type);
      },
    },
  });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hello" });
  expect(await until("the end", () => endOf(log, conv, run_id!))).toHaveProperty("run_finished");
  await until("the authority's events", () => reported.length === 2);
  expect(reported).toEqual(["run.started", "run.completed"]);
});

test("a stopping server ends its runs with a reason, leaves the queue to others, and accepts nothing new", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  let closed = 0;
  const a = await servers.start({
    engine: () => ({
      ...never({ convId: "", org: "", subject: "" }),
      close: () => void closed++,
    }),
  });
  const b = await servers.start({ engine: engine.factory });
  const conv = convId();
  const first = await a.plane.chat(ada, { convId: conv, message: "one" });
  const second = await a.plane.chat(ada, { convId: conv, message: "two", policy: "queue" });
  await until("some text", async () => answerOf(await eventsOf(a.log, conv)));
  await a.plane.stop();
  expect(closed).toBe(1);
  const end = await endOf(b.log, conv, first.run_id!);
  expect(end?.run_failed).toMatchObject({
    code: "server_lost",
    message: expect.stringContaining("shutting down"),
  });
  expect(a.reported).toContain(`${first.run_id} run.failed`);
  await expect(a.plane.chat(ada, { convId: conv, message: "three" })).rejects.toMatchObject({
    code: "shutting_down",
  });
  await b.plane.sweep();
  await until("the second to run", () => engine.started.includes("two"));
  engine.release("two");
  expect(await until("its end", () => endOf(b.log, conv, second.run_id!))).toHaveProperty("run_finished");
});

test("a draining server completes its answers, accepts no message, and hands its queue over at once", async () => {
  await using servers = await Servers.open();
  const [engine, others] = [new GatedEngine(), new GatedEngine()];
  const a = await servers.start({ engine: engine.factory });
  // It sweeps by a wakeup alone.
  const b = await servers.start({ engine: others.factory, leaseMs: 600_000 });
  await b.plane.sweep();
  const conv = convId();
  const first = await a.plane.chat(ada, { convId: conv, message: "one" });
  const second = await a.plane.chat(ada, { convId: conv, message: "two", policy: "queue" });
  await until("some text", async () => answerOf(await eventsOf(a.log, conv)));
  const followed = (async () => {
    for await (const { event } of a.plane.follow(ada, conv, first.cursor!, new AbortController().signal))
      if (event.run_finished) return "whole";
  })();
  const drained = a.plane.drain(600_000);
  await expect(a.plane.chat(ada, { convId: convId(), message: "new" })).rejects.toMatchObject({
    code: "shutting_down",
  });
  engine.release("one");
  await drained;
  expect(await followed).toBe("whole");
  expect(await endOf(a.log, conv, first.run_id!)).toHaveProperty("run_finished");
  await until("the second to run", () => others.started.includes("two"));
  others.release("two");
  expect(await until("its end", () => endOf(b.log, conv, second.run_id!))).toHaveProperty("run_finished");
  expect(engine.started).toEqual(["one"]);
});

test("a drain without an active run ends at once, and one that times out leaves the rest to the stop", async () => {
  await using servers = await Servers.open();
  const clock = new ManualClock(Date.now());
  const idle = await servers.start({ engine: never, clock });
  await idle.plane.drain(600_000);
  const { plane, log } = await servers.start({ engine: never, clock });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(log, conv)));
  let over = false;
  const drained = plane.drain(30_000).then(() => {
    over = true;
  });
  await clock.advance(29_000);
  expect(over).toBe(false);
  await until("the time is up", async () => {
    await clock.advance(1_000);
    return over;
  });
  await drained;
  expect(await endOf(log, conv, run_id!)).toBeUndefined();
  await plane.stop();
  expect((await endOf(log, conv, run_id!))?.run_failed?.code).toBe("server_lost");
});

test("answers interrupting messages in the order in which they were sent", async () => {
  await using servers = await Servers.open();
  const gate = Promise.withResolvers<void>();
  const started: string[] = [];
  const { plane } = await servers.start({
    engine: engineOf(async function* ({ message }) {
      started.push(message);
      yield { text_delta: { text: "so" } };
      // It takes its time to stop.
      if (message === "zero") await gate.promise;
    }),
  });
  const conv = convId();
  await plane.chat(ada, { convId: conv, message: "zero" });
  await until("it runs", () => started.length === 1);
  await plane.chat(ada, { convId: conv, message: "waits", policy: "queue" });
  for (const message of ["one", "two"]) await plane.chat(ada, { convId: conv, message, policy: "interrupt" });
  gate.resolve();
  await until("all of them", () => started.length === 4);
  expect(started).toEqual(["zero", "one", "two", "waits"]);
});

test("runs as many conversations as there may be engines, and no more", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: never, maxEngines: 2 });
  await plane.chat(ada, { convId: convId(), message: "one" });
  await plane.chat(ada, { convId: convId(), message: "two" });
  await expect(plane.chat(ada, { convId: convId(), message: "three" })).rejects.toMatchObject({
    code: "overloaded",
  });
});
