import { pino } from "pino";
import { expect, test } from "vitest";
import type { Clock } from "../../kit/clock.ts";
import { openQuotas } from "../../kit/quota.ts";
import { openTelemetry } from "../../kit/telemetry.ts";
import { type OverviewOptions, openOverview, type Snapshot } from "./overview.ts";

/** A clock that the test moves. */
function handClock(): Clock & { move(ms: number): void; readonly waiting: number } {
  let now = 1_000_000;
  let timers: { at: number; fn: () => void }[] = [];
  return {
    now: () => now,
    after(ms, fn) {
      const timer = { at: now + ms, fn };
      timers.push(timer);
      return () => {
        timers = timers.filter((each) => each !== timer);
      };
    },
    move(ms) {
      now += ms;
      const due = timers.filter(({ at }) => at <= now);
      timers = timers.filter(({ at }) => at > now);
      for (const { fn } of due) fn();
    },
    get waiting() {
      return timers.length;
    },
  };
}

async function opened(options: Partial<OverviewOptions> = {}) {
  const clock = handClock();
  const telemetry = await openTelemetry();
  const log = pino({ level: "silent" });
  const quotas = openQuotas(telemetry.meter);
  const context = { clock, telemetry, quotas, log, random: Math.random, newId: () => "id" };
  const traffic = { sockets: 0, messages: 0, bytes: 0, errors: 0, refused: 0, slowCloses: 0 };
  let looked = 0;
  const overview = openOverview(context, {
    intervalMs: 1_000,
    async health() {
      looked++;
      return { database: { state: "ok" } };
    },
    sync: {
      hub: {
        lastPoll: () => ({ heads: undefined, at: 0 }),
        open: () => [],
      } as Partial<OverviewOptions["sync"]["hub"]> as OverviewOptions["sync"]["hub"],
    },
    blackboard: { agents: async () => [], lag: async () => [] },
    backends: { conversations: "postgres", blackboard: "postgres" },
    refuseLag: 100,
    traffic: () => ({ ...traffic }),
    ...options,
  });
  return { overview, clock, telemetry, traffic, looked: () => looked };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test("rates count from the previous snapshot", async () => {
  const { overview, clock, traffic } = await opened();
  clock.move(2_000);
  traffic.messages = 10;
  expect((await overview.get()).gateway!.messages_per_s).toBe(5);
  clock.move(1_000);
  traffic.messages = 11;
  expect((await overview.get()).gateway!.messages_per_s).toBe(1);
  clock.move(10_000);
  expect((await overview.get()).gateway!.messages_per_s).toBe(0);
  await overview.stop();
});

test("makes one snapshot per interval for any number of viewers, and none without one", async () => {
  const { overview, clock, looked } = await opened();
  clock.move(60_000);
  await turn();
  expect(looked()).toBe(0);
  const heard: [Snapshot[], Snapshot[]] = [[], []];
  const leave = heard.map((list) => overview.watch((snapshot) => list.push(snapshot)));
  expect(overview.watched).toBe(true);
  while (heard[1].length === 0) await turn();
  expect(looked()).toBe(1);
  clock.move(1_000);
  while (heard[0].length < 2) await turn();
  expect(looked()).toBe(2);
  expect(heard[0]).toEqual(heard[1]);
  for (const each of leave) each();
  expect(overview.watched).toBe(false);
  for (let i = 0; i < 5; i++) {
    clock.move(20_000);
    await turn();
  }
  expect(looked()).toBe(2);
  expect(clock.waiting).toBe(0);
  await overview.stop();
});

test("runs that failed within five minutes make conversations degraded, and no longer", async () => {
  const { overview, clock, telemetry } = await opened();
  const runs = telemetry.meter.createCounter("khala_conversation_runs_total");
  runs.add(2, { outcome: "failed" });
  runs.add(1, { outcome: "finished" });
  const first = (await overview.get()).conversations!;
  expect(first).toMatchObject({
    state: "degraded",
    failed: 2,
    message: expect.stringContaining("2 runs failed"),
  });
  clock.move(200_000);
  expect((await overview.get()).conversations!.state).toBe("degraded");
  clock.move(301_000);
  expect((await overview.get()).conversations).toMatchObject({ state: "ok", failed: 2 });
  await overview.stop();
});

test("an area that does not answer does not affect the others", async () => {
  const { overview } = await opened({
    health: async () => ({
      database: { state: "ok" },
      blackboard: { state: "degraded", message: "Kafka is away." },
    }),
    blackboard: {
      agents: () => Promise.reject(new Error("away")),
      lag: () => Promise.reject(new Error("away")),
    },
  });
  const { sync, blackboard } = await overview.get();
  expect(sync!.state).toBe("ok");
  expect(blackboard).toMatchObject({ state: "degraded", message: "Kafka is away.", agents: 0, lag: 0 });
  await overview.stop();
});

test("names what is paused, delayed or failing, with what to do", async () => {
  const { overview } = await opened({
    blackboard: {
      agents: async () => [
        { name: "writer", state: "paused", dead: "0", waiting: "3", running: "0" },
        { name: "reviewer", state: "open", dead: "2", waiting: "0", running: "1" },
      ],
      lag: async () => [{ reader: "writer", lag: "100" }],
    },
  });
  const { blackboard } = await overview.get();
  expect(blackboard).toMatchObject({
    state: "degraded",
    waiting: 3,
    running: 1,
    dead: 2,
    paused: 1,
    lag: 100,
  });
  for (const part of ["2 dead letters", "Paused: writer", "reviewer", "refused"])
    expect(blackboard!.message).toContain(part);
  await overview.stop();
});
