import { randomUUID } from "node:crypto";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { EngineFactory, Turn } from "../engines/engine.ts";
import { endOf, eventsOf, GatedEngine, kindsOf, Servers, stallFirstOpen } from "../test_support.ts";

const ada = testViewer();
const convId = () => `conv-${randomUUID()}`;

/** Calls a tool, then reports it; hangs in the middle of the sentence while it may. */
class Worker {
  readonly turns: Turn[] = [];
  executed = 0;
  hang = true;

  readonly factory: EngineFactory = () => ({
    resumable: true,
    run: (turn, signal) => this.#run(turn, signal),
  });

  async *#run(turn: Turn, signal: AbortSignal) {
    this.turns.push(turn);
    const done = turn.resume?.messages.some(({ parts = [] }) => parts.some(({ tool }) => tool?.output));
    if (!done) {
      yield { text_delta: { text: "Let me see. " } };
      yield { tool_call: { tool_call_id: "t1", tool: "count", input: {} } };
      this.executed++;
      yield { tool_result: { tool_call_id: "t1", tool: "count", output: { n: 42 } } };
    }
    yield { text_delta: { text: "It is " } };
    if (this.hang) await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    yield { text_delta: { text: "42." } };
  }
}

/** A server with a stopped clock: it renews nothing. */
async function lostServer(servers: Servers, engine: EngineFactory) {
  const clock = new ManualClock(Date.now());
  return { ...(await servers.start({ engine, clock, leaseMs: 500 })), clock };
}

const said = async (servers: Servers, conv: string) => {
  const rows = await servers.database.query<{ parts: { text?: string }[] }>({
    text: "SELECT parts FROM runtime.messages WHERE conv_id = $1 AND role = 'assistant'",
    values: [conv],
  });
  return rows.map(({ parts }) => parts);
};
const WHOLE = [
  [
    { text: "Let me see. " },
    { tool: { tool_call_id: "t1", tool: "count", input: {}, output: { n: 42 } } },
    { text: "It is 42." },
  ],
];

test("another server resumes a lost run after its last tool result, without repeating the tool", async () => {
  await using servers = await Servers.open();
  const engine = new Worker();
  const gone = await lostServer(servers, engine.factory);
  const conv = convId();
  const { run_id } = await gone.plane.chat(ada, { convId: conv, message: "How many?" });
  await until("the sentence begins", async () => {
    // Deltas within a window are joined.
    await gone.clock.advance(10);
    return (await eventsOf(gone.log, conv)).some(({ event }) => event.text_delta?.text === "It is ");
  });
  engine.hang = false;
  const other = await servers.start({ engine: engine.factory, leaseMs: 60_000 });
  expect(await until("the end", () => endOf(other.log, conv, run_id!))).toHaveProperty("run_finished");
  expect(engine.executed).toBe(1);
  expect(engine.turns[1]).toMatchObject({
    runId: run_id,
    message: "How many?",
    messageId: engine.turns[0]!.messageId,
    history: [],
    resume: { attempt: 1, messages: [{ role: "assistant", parts: WHOLE[0]!.slice(0, 2) }] },
  });
  const kinds = (await kindsOf(other.log, conv)).filter((kind) => kind.startsWith("run_"));
  expect(kinds).toEqual(["run_started", "run_resumed", "run_finished"]);
  await until("the record", async () => (await other.plane.run(ada, conv))?.status === "finished");
  expect(await said(servers, conv)).toEqual(WHOLE);
  expect((await other.plane.state(ada, conv)).messages!.at(-1)).toMatchObject({
    parts: WHOLE[0],
    status: "done",
  });
});

test("a drain that times out hands a resumable run over, without a failure", async () => {
  await using servers = await Servers.open();
  const engine = new Worker();
  const a = await servers.start({ engine: engine.factory });
  const b = await servers.start({ engine: engine.factory, leaseMs: 600_000 });
  await b.plane.sweep();
  const conv = convId();
  const { run_id } = await a.plane.chat(ada, { convId: conv, message: "How many?" });
  await until("it runs", () => engine.executed === 1);
  await until("the result is in the log", async () => (await kindsOf(a.log, conv)).includes("tool_result"));
  engine.hang = false;
  await a.plane.drain(0);
  expect(await until("the end", () => endOf(b.log, conv, run_id!))).toHaveProperty("run_finished");
  expect(engine.executed).toBe(1);
  await until("the record", async () => (await b.plane.run(ada, conv))?.status === "finished");
  expect(await said(servers, conv)).toEqual(WHOLE);
});

test("resumes a run at most three times, then fails it with server_lost", async () => {
  await using servers = await Servers.open();
  const engine = new Worker();
  const first = await lostServer(servers, engine.factory);
  const conv = convId();
  const { run_id } = await first.plane.chat(ada, { convId: conv, message: "How many?" });
  for (let attempt = 1; attempt <= 3; attempt++) {
    const next = await lostServer(servers, engine.factory);
    await until("the next attempt", async () => {
      await next.plane.sweep();
      return engine.turns.length === attempt + 1;
    });
    expect(engine.turns[attempt]!.resume!.attempt).toBe(attempt);
  }
  const last = await servers.start({ engine: engine.factory, leaseMs: 60_000 });
  const end = await until("the end", () => endOf(last.log, conv, run_id!));
  expect(end.run_failed?.code).toBe("server_lost");
  expect(engine.turns).toHaveLength(4);
});

test("another server starts a queued run whose server was lost before it began, with any engine", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const gone = await lostServer(servers, engine.factory);
  const conv = convId();
  await gone.plane.chat(ada, { convId: conv, message: "one" });
  const second = await gone.plane.chat(ada, { convId: conv, message: "two", policy: "queue" });
  await until("it runs", () => engine.started.includes("one"));
  const gate = Promise.withResolvers<void>();
  // The next server claims the second run, and is lost before it writes.
  const silent = await servers.start({
    engine: engine.factory,
    clock: new ManualClock(Date.now()),
    leaseMs: 500,
    wrapLog: (log) => ({
      ...log,
      async append(stream, entries, ...rest) {
        if (entries.some((entry) => entry.includes("run_started"))) await gate.promise;
        return log.append(stream, entries, ...rest);
      },
    }),
  });
  await until("the second is claimed", async () => {
    silent.plane.sweep().catch(() => {});
    return (await gone.plane.run(ada, conv))?.run_id === second.run_id;
  });
  const last = await servers.start({ engine: engine.factory, leaseMs: 60_000 });
  await until("the second runs", () => engine.started.includes("two"));
  engine.release("two");
  expect(await until("its end", () => endOf(last.log, conv, second.run_id!))).toHaveProperty("run_finished");
  gate.resolve();
  expect(await kindsOf(last.log, conv, second.run_id)).toEqual(
    expect.arrayContaining(["run_started", "message", "run_finished"]),
  );
});

test("a server that stops leaves a run that has begun, and has no engine yet, to another one", async () => {
  await using servers = await Servers.open();
  const worker = new Worker();
  worker.hang = false;
  let stall: ReturnType<typeof stallFirstOpen> | undefined;
  const a = await servers.start({
    engine: worker.factory,
    wrapLog(log) {
      stall = stallFirstOpen(log);
      return stall.log;
    },
  });
  const b = await servers.start({ engine: worker.factory });
  const conv = convId();
  const sent = a.plane.chat(ada, { convId: conv, message: "How many?" });
  await stall!.stalled;
  const handedOver = a.plane.drain(0);
  stall!.release();
  await handedOver;
  await a.plane.stop();
  const { run_id } = await sent;
  expect(await until("the end", () => endOf(b.log, conv, run_id!))).toHaveProperty("run_finished");
  expect(await said(servers, conv)).toEqual(WHOLE);
});

test("GET /chat/:id answers while a run is resumed in a log that replaces a lost one", async () => {
  await using servers = await Servers.open();
  const worker = new Worker();
  const lost = await lostServer(servers, worker.factory);
  const conv = convId();
  await lost.plane.chat(ada, { convId: conv, message: "How many?" });
  await until("the result", async () => (await kindsOf(lost.log, conv)).includes("tool_result"));
  await lost.log.delete(`chat:${conv}`);
  const other = await servers.start({ engine: worker.factory, leaseMs: 500 });
  await until("it goes on", async () => (await kindsOf(other.log, conv)).includes("run_resumed"));
  const { messages, run } = await other.plane.state(ada, conv);
  expect(messages![0]).toMatchObject({ parts: [{ text: "How many?" }] });
  expect(run).toMatchObject({ status: "running" });
});
