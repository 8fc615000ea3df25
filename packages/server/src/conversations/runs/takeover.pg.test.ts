import { randomUUID } from "node:crypto";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import {
  answerOf,
  endOf,
  engineOf,
  eventsOf,
  GatedEngine,
  kindsOf,
  Servers,
  stallFirstOpen,
} from "../test_support.ts";

const ada = testViewer();
const convId = () => `conv-${randomUUID()}`;
const quick = engineOf(async function* ({ message }) {
  yield { text_delta: { text: `${message}!` } };
});
const textOf = async (...args: Parameters<typeof eventsOf>) =>
  JSON.stringify(await eventsOf(...args), ofBigint);
const ofBigint = (_: string, value: unknown) => (typeof value === "bigint" ? String(value) : value);

/** A server with a stopped clock: it renews nothing, without noticing. */
async function pausedServer(servers: Servers, engine: GatedEngine, leaseMs = 200) {
  const clock = new ManualClock(Date.now());
  const server = await servers.start({ engine: engine.factory, clock, leaseMs });
  return { ...server, clock };
}

test("another server marks the run of a lost server as failed, in the log and the event log", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const gone = await pausedServer(servers, engine);
  const conv = convId();
  const { run_id } = await gone.plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(gone.log, conv)));
  const other = await servers.start({ engine: quick, leaseMs: 1_000 });
  const end = await until("the end", () => endOf(other.log, conv, run_id!));
  expect(end.run_failed).toEqual({
    code: "server_lost",
    message: expect.stringContaining("Send the message again"),
  });
  await until("the authority's event", () => other.reported.includes(`${run_id} run.failed`));
  await until("the record", async () => (await other.plane.run(ada, conv))?.status === "failed");
  await other.plane.chat(ada, { convId: conv, message: "two" });
});

test("a paused server writes nothing after it wakes", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const paused = await pausedServer(servers, engine);
  const conv = convId();
  const { run_id } = await paused.plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(paused.log, conv)));
  const other = await servers.start({ engine: quick, leaseMs: 1_000 });
  await until("the takeover", () => endOf(other.log, conv, run_id!));
  const next = await until("the next run", () =>
    other.plane.chat(ada, { convId: conv, message: "two" }).catch(() => undefined),
  );
  await until("its end", () => endOf(other.log, conv, next.run_id!));
  await until("its record", async () => (await other.plane.run(ada, conv))?.status === "finished");
  const before = await textOf(other.log, conv);
  // The engine wakes first and ends its answer; then the timers fire.
  engine.release("one");
  await until("the answer is dropped", async () => {
    await paused.clock.advance(10_000);
    return (await paused.context.telemetry.scrape()).includes(
      'khala_conversation_runs_total{outcome="lost"} 1',
    );
  });
  expect(await textOf(other.log, conv)).toBe(before);
  expect(paused.reported.filter((reported) => reported === `${run_id} run.completed`)).toEqual([]);
  expect(await other.plane.run(ada, conv)).toMatchObject({ run_id: next.run_id, status: "finished" });
});

test("a paused server that wakes during an answer stops its engine", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const paused = await pausedServer(servers, engine);
  const conv = convId();
  const { run_id } = await paused.plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(paused.log, conv)));
  const other = await servers.start({ engine: quick, leaseMs: 100 });
  await until("the takeover", () => endOf(other.log, conv, run_id!));
  await until("its record", async () => (await other.plane.run(ada, conv))?.status === "failed");
  const before = await textOf(other.log, conv);
  await until("the engine ends", async () => {
    await paused.clock.advance(100);
    return (await paused.context.telemetry.scrape()).includes("khala_conversation_runs_running 0");
  });
  expect(await textOf(other.log, conv)).toBe(before);
});

test("a takeover starts when the lease ends, not at the next regular sweep", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const gone = await pausedServer(servers, engine, 1_000);
  const conv = convId();
  const { run_id } = await gone.plane.chat(ada, { convId: conv, message: "one" });
  // Its own interval is longer than this test may take.
  const other = await servers.start({ engine: quick, leaseMs: 600_000 });
  expect(await until("the end", () => endOf(other.log, conv, run_id!))).toHaveProperty("run_failed");
});

test("a message waits for the takeover of a run with an expired lease, and is answered", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const gone = await pausedServer(servers, engine, 1_000);
  const other = await servers.start({ engine: quick, leaseMs: 60_000 });
  await other.plane.sweep();
  const conv = convId();
  const first = await gone.plane.chat(ada, { convId: conv, message: "one" });
  const second = await other.plane.chat(ada, { convId: conv, message: "two" });
  expect(await until("its end", () => endOf(other.log, conv, second.run_id!))).toHaveProperty("run_finished");
  expect((await endOf(other.log, conv, first.run_id!))?.run_failed?.code).toBe("server_lost");
});

test("a server paused before its run's first entry writes nothing after the takeover", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const clock = new ManualClock(Date.now());
  let stall: ReturnType<typeof stallFirstOpen> | undefined;
  const paused = await servers.start({
    engine: engine.factory,
    clock,
    leaseMs: 200,
    wrapLog(log) {
      stall = stallFirstOpen(log);
      return stall.log;
    },
  });
  const conv = convId();
  const sent = paused.plane.chat(ada, { convId: conv, message: "one" });
  const outcome = sent.then(
    () => "accepted",
    (error) => error.code,
  );
  await stall!.stalled;
  const other = await servers.start({ engine: quick, leaseMs: 60_000 });
  await until("the takeover", async () => (await other.plane.run(ada, conv))?.status === "failed");
  stall!.release();
  expect(await outcome).toBe("unavailable");
  expect((await kindsOf(other.log, conv)).filter((kind) => kind.startsWith("run_"))).toEqual([]);
  await other.plane.chat(ada, { convId: conv, message: "two" });
});

test("after a lost log, a taken-over run and the runs queued behind it end in the new log", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const gone = await pausedServer(servers, engine, 1_000);
  const conv = convId();
  const first = await gone.plane.chat(ada, { convId: conv, message: "one" });
  const second = await gone.plane.chat(ada, { convId: conv, message: "two", policy: "queue" });
  await until("some text", async () => answerOf(await eventsOf(gone.log, conv)));
  const [lost] = await gone.log.bounds([`chat:${conv}`]);
  await servers.database.query({ text: "DELETE FROM runtime.log_streams" });
  const silent = new GatedEngine();
  const heir = await pausedServer(servers, silent, 1_000);
  await until("the takeover", async () => {
    await heir.plane.sweep();
    return silent.started.includes("two");
  });
  expect(await endOf(heir.log, conv, first.run_id!)).toHaveProperty("run_failed");
  const [row] = await servers.database.query<{ cursor: string }>({
    text: "SELECT cursor FROM runtime.conversation_runs WHERE run_id = $1",
    values: [second.run_id!],
  });
  expect(row!.cursor.startsWith(lost!.epoch)).toBe(false);
  // The second server is lost too.
  const last = await servers.start({ engine: quick, leaseMs: 60_000 });
  expect(await until("its end", () => endOf(last.log, conv, second.run_id!))).toHaveProperty("run_failed");
});

test("a message takes over the conversation as soon as the lease ends, without waiting for a sweep", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const gone = await pausedServer(servers, engine);
  const other = await servers.start({ engine: quick, leaseMs: 60_000 });
  // That of its start is over, or as good as: it takes nothing over that is to come.
  await other.plane.sweep();
  const conv = convId();
  const first = await gone.plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(gone.log, conv)));
  const second = await until("the lease's end", () =>
    other.plane.chat(ada, { convId: conv, message: "two" }).catch((error) => {
      expect(error).toMatchObject({ code: "conversation_busy" });
      return undefined;
    }),
  );
  await until("its end", () => endOf(other.log, conv, second.run_id!));
  expect((await endOf(other.log, conv, first.run_id!))?.run_failed?.code).toBe("server_lost");
  expect((await kindsOf(other.log, conv)).filter((kind) => kind.startsWith("run_"))).toEqual([
    "run_started",
    "run_failed",
    "run_started",
    "run_finished",
  ]);
});

test("an end that the lost server still wrote counts, and gets no second one", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const gone = await pausedServer(servers, engine);
  const conv = convId();
  const { run_id } = await gone.plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(gone.log, conv)));
  await gone.log.append(`chat:${conv}`, [JSON.stringify({ run_id, event: { run_finished: {} } })]);
  const other = await servers.start({ engine: quick, leaseMs: 100 });
  await until("the record", async () => (await other.plane.run(ada, conv))?.status === "finished");
  expect((await kindsOf(other.log, conv)).filter((kind) => kind.startsWith("run_"))).toEqual([
    "run_started",
    "run_finished",
  ]);
  await until("the authority's event", () => other.reported.includes(`${run_id} run.completed`));
});

test("the server that takes a lost run over starts the queued one", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  // Both messages arrive before its lease ends.
  const gone = await pausedServer(servers, engine, 3_000);
  const conv = convId();
  await gone.plane.chat(ada, { convId: conv, message: "one" });
  const second = await gone.plane.chat(ada, { convId: conv, message: "two", policy: "queue" });
  const other = await servers.start({ engine: quick, leaseMs: 1_000 });
  expect(await until("its end", () => endOf(other.log, conv, second.run_id!))).toHaveProperty("run_finished");
  expect(answerOf((await eventsOf(other.log, conv)).filter(({ runId }) => runId === second.run_id))).toBe(
    "two!",
  );
});

test("stopping a lost run ends it", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const gone = await pausedServer(servers, engine);
  servers.wakeupsOn = false;
  const other = await servers.start({ engine: quick, leaseMs: 60_000 });
  // That of its start is over, or as good as: it takes nothing over that is to come.
  await other.plane.sweep();
  const conv = convId();
  const { run_id } = await gone.plane.chat(ada, { convId: conv, message: "one" });
  await until("the end", async () => {
    await other.plane.stopRun(ada, conv);
    return endOf(other.log, conv, run_id!);
  });
  await until("the record", async () => (await other.plane.stopRun(ada, conv)).stopped === false);
});

test("two servers that take over the same conversations end each run once", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const gone = await pausedServer(servers, engine);
  const runs: [string, string][] = [];
  for (let i = 0; i < 20; i++) {
    const conv = convId();
    const { run_id } = await gone.plane.chat(ada, { convId: conv, message: `m${i}` });
    runs.push([conv, run_id!]);
  }
  const [a, b] = await Promise.all([
    servers.start({ engine: quick, leaseMs: 1_000 }),
    servers.start({ engine: quick, leaseMs: 1_000 }),
  ]);
  for (const [conv] of runs)
    await until("the record", async () => (await a.plane.run(ada, conv))?.status === "failed");
  for (const [conv, runId] of runs) {
    const kinds = await kindsOf(a.log, conv, runId);
    expect(kinds.filter((kind) => kind === "run_failed")).toHaveLength(1);
  }
  await until("the authority's events", () => a.reported.length + b.reported.length === 20);
});

test("a server that was only late keeps its runs", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane, log } = await servers.start({ engine: engine.factory, leaseMs: 60_000 });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(log, conv)));
  await servers.database.query({
    text: "UPDATE runtime.conversations SET lease_until = now() - interval '1 min' WHERE conv_id = $1",
    values: [conv],
  });
  await plane.sweep();
  engine.release("one");
  expect(await until("the end", () => endOf(log, conv, run_id!))).toHaveProperty("run_finished");
});

test("a server that writes its end during the takeover is either fenced or accepted, never both", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const gone = await pausedServer(servers, engine);
  const conv = convId();
  const { run_id } = await gone.plane.chat(ada, { convId: conv, message: "one" });
  await until("some text", async () => answerOf(await eventsOf(gone.log, conv)));
  const end = JSON.stringify({ run_id, event: { run_finished: {} } });
  const late: Promise<unknown>[] = [];
  await servers.start({
    engine: quick,
    leaseMs: 100,
    // Whenever the other one has read the log, the lost server wakes and writes.
    wrapLog: (log) => ({
      ...log,
      async read(...args) {
        const page = await log.read(...args);
        if (late.length === 0) late.push(gone.log.append(`chat:${conv}`, [end], { fence: 1n }));
        await Promise.allSettled(late);
        return page;
      },
    }),
  });
  await until("the end", () => endOf(gone.log, conv, run_id!));
  const ends = (await kindsOf(gone.log, conv)).filter((kind) => /^run_(finished|failed)$/.test(kind));
  expect(ends).toEqual(["run_failed"]);
  await expect(late[0]).rejects.toThrow(/higher fencing token/);
});

test("the next sweep reports a run's end that the event log never got", async () => {
  await using servers = await Servers.open();
  const deaf = await servers.start({
    engine: quick,
    runs: { append: () => Promise.reject(new Error("the authority is away")) },
  });
  const conv = convId();
  const { run_id } = await deaf.plane.chat(ada, { convId: conv, message: "one" });
  await until("the record", async () => (await deaf.plane.run(ada, conv))?.status === "finished");
  const other = await servers.start({ engine: quick, leaseMs: 60_000 });
  await servers.database.query({
    text: "UPDATE runtime.conversation_runs SET ended_at = ended_at - interval '1 hour'",
  });
  await other.plane.sweep();
  await until("the authority's events", () => other.reported.includes(`${run_id} run.completed`));
  expect(other.reported[0]).toBe(`${run_id} run.started`);
  await until("it is reported once", async () => {
    const rows = await servers.database.query({
      text: "SELECT FROM runtime.conversation_runs WHERE reported",
    });
    return rows.length === 1;
  });
});

test("GET /chat/:id answers while a lost run ends in a log that replaces a lost one", async () => {
  await using servers = await Servers.open();
  const engine = engineOf(async function* (_, signal) {
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
  });
  const clock = new ManualClock(Date.now());
  const lost = await servers.start({ engine, clock, leaseMs: 500 });
  const conv = convId();
  const { run_id } = await lost.plane.chat(ada, { convId: conv, message: "one" });
  await lost.log.delete(`chat:${conv}`);
  const gate = Promise.withResolvers<void>();
  const next = await servers.start({
    engine,
    leaseMs: 500,
    // The end of the run is in the log, and not in its row yet.
    wrapDatabase: (database) => ({
      ...database,
      interactive: (work) => gate.promise.then(() => database.interactive(work)),
    }),
  });
  await until("the end", () => endOf(next.log, conv, run_id!));
  const state = await next.plane.state(ada, conv).finally(gate.resolve);
  expect(state.messages).toMatchObject([{ parts: [{ text: "one" }] }]);
  expect(state.last_run).toMatchObject({ status: "failed", error: { code: "server_lost" } });
});

test.each(["ends its answer", "is lost"])(
  "a run whose messages the database refuses fails, and the conversation is free, when its server %s",
  async (how) => {
    await using servers = await Servers.open();
    await servers.database.query({
      text: "ALTER TABLE runtime.messages ADD CONSTRAINT c CHECK (parts::text NOT LIKE '%poison: %')",
    });
    const engine = new GatedEngine();
    const word = "poison";
    const gone = await pausedServer(servers, engine);
    const conv = convId();
    const { run_id } = await gone.plane.chat(ada, { convId: conv, message: word });
    await until("some text", async () => answerOf(await eventsOf(gone.log, conv)));
    if (how !== "is lost") engine.release(word);
    const other = await servers.start({ engine: quick, leaseMs: 1_000 });
    const end = await until("the end", () => endOf(other.log, conv, run_id!));
    const failure = { code: "engine_failed", message: expect.stringContaining("could not be completed") };
    expect(end.run_failed).toMatchObject(failure);
    await until("the record", async () => {
      const run = await other.plane.run(ada, conv);
      return run?.status === "failed" && run.error?.code === "engine_failed";
    });
    await until("the authority's event", () => other.reported.includes(`${run_id} run.failed`));
    const next = await other.plane.chat(ada, { convId: conv, message: "two" });
    expect(await until("the next end", () => endOf(other.log, conv, next.run_id!))).toHaveProperty(
      "run_finished",
    );
  },
);
