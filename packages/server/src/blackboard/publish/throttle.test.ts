import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { beforeEach, expect, test } from "vitest";
import type { Context } from "../../kit/context.ts";
import { openThrottle, type Throttle } from "./throttle.ts";

let clock: ManualClock;
let lags: PartitionLagJson[];
let waiting: Map<string, Map<string, number>>;
let asked: number;
let answer: (() => Promise<void>) | undefined;
let waitingAsked: number;
let context: Context;
let throttle: Throttle;
beforeEach(async () => {
  clock = new ManualClock();
  lags = [];
  waiting = new Map();
  asked = 0;
  answer = undefined;
  waitingAsked = 0;
  throttle = await open();
});

async function open(counts?: (reader: string) => boolean): Promise<Throttle> {
  const board = {
    async lag() {
      asked++;
      await answer?.();
      return lags;
    },
    // By default, all waiting tasks are the org's own.
    async waiting(org: string) {
      waitingAsked++;
      return waiting.get(org) ?? new Map(lags.map(({ reader }) => [reader!, sumOf(reader!)]));
    },
  };
  context = await testContext({ clock });
  return openThrottle(board, context, {
    soft: 100,
    hard: 200,
    agents: [
      { name: "reviewer", consumes: ["Draft"] },
      { name: "paused", consumes: ["Draft"] },
      { name: "other", consumes: ["Plan"] },
    ],
    ...(counts && { counts }),
  });
}

const sumOf = (reader: string) =>
  lags.reduce((sum, each) => sum + (each.reader === reader ? Number(each.lag) : 0), 0);
const DRAFT = new Set(["Draft"]);
const lag = (reader: string, ...byPartition: number[]) =>
  byPartition.map((n, partition) => ({ reader, partition, lag: String(n) }));

/** How long a publisher is held. */
async function held(): Promise<number> {
  const from = clock.now();
  let until: number | undefined;
  const entering = throttle.enter("acme", DRAFT).then(() => {
    until = clock.now();
  });
  for (let i = 0; until === undefined && i < 2_000; i++) {
    await new Promise(setImmediate);
    if (until === undefined) await clock.advance(1);
  }
  await entering;
  return until! - from;
}

test("does not delay publishers below the soft threshold", async () => {
  lags = [...lag("router", 99), ...lag("reviewer", 50, 49)];
  expect(await held()).toBe(0);
});

test("delays publishers in proportion between the thresholds, by the sum of a reader's partitions", async () => {
  lags = [...lag("router", 10), ...lag("reviewer", 75, 75)];
  expect(await held()).toBe(500);
  lags = lag("reviewer", 110);
  await clock.advance(1_000);
  await held();
  await clock.advance(1_000);
  await held();
  expect(await held()).toBe(100);
});

test("refuses an org above the hard threshold, with the agent, its tasks and the retry time", async () => {
  lags = lag("reviewer", 300, 200);
  await expect(throttle.enter("acme", DRAFT)).rejects.toMatchObject({
    code: "limit_exceeded",
    message: expect.stringMatching(/quota waiting_tasks: 200 open tasks .* "reviewer" has 500/),
    details: { retry_after_ms: 2_500, field: "waiting_tasks" },
  });
  const use = { org: "acme", name: "waiting_tasks", limit: 200, inUse: 500, rejected: 1 };
  expect(await context.quotas.of("acme")).toMatchObject([use]);
  expect(await context.quotas.ofAll(10)).toMatchObject([use]);
  expect(await context.telemetry.scrape()).toMatch(
    /khala_quota_rejections_total\{[^}]*quota="waiting_tasks"[^}]*\} 1\b/,
  );
  lags = lag("reviewer", 99_999_999);
  await clock.advance(10_000);
  await expect(throttle.enter("acme", DRAFT)).rejects.toMatchObject({ details: { retry_after_ms: 30_000 } });
});

test("reads the lag once a second for a thousand publishers", async () => {
  for (let i = 0; i < 1_000; i++) await throttle.enter("acme", DRAFT);
  await Promise.all(Array.from({ length: 1_000 }, () => throttle.enter("acme", DRAFT)));
  expect(asked).toBe(1);
  await clock.advance(1_000);
  await Promise.all(Array.from({ length: 1_000 }, () => throttle.enter("acme", DRAFT)));
  expect(asked).toBe(2);
});

test("reads nothing while nobody publishes, and an old figure delays nobody", async () => {
  lags = lag("reviewer", 500);
  await expect(throttle.enter("acme", DRAFT)).rejects.toThrow("has 500");
  lags = [];
  await clock.advance(60_000);
  expect(asked).toBe(1);
  expect(await held()).toBe(0);
});

test("delays publishers by a second at most when the board does not answer, and not when it fails", async () => {
  answer = () => new Promise(() => {});
  expect(await held()).toBe(1_000);
  throttle = await open();
  answer = () => Promise.reject(new Error("down"));
  expect(await held()).toBe(0);
});

test("ignores readers that do not count", async () => {
  lags = lag("paused", 500);
  throttle = await open((reader) => reader !== "paused");
  expect(await held()).toBe(0);
});

test("ignores agents that consume none of the types", async () => {
  lags = lag("other", 500);
  expect(await held()).toBe(0);
  await expect(throttle.enter("acme", new Set(["Draft", "Plan"]))).rejects.toThrow(`"other" has 500`);
});

test("one org's backlog delays no other org, until all together have ten times as much", async () => {
  lags = lag("reviewer", 900);
  waiting.set("acme", new Map([["reviewer", 1]]));
  expect(await held()).toBe(0);
  await expect(throttle.enter("large", DRAFT)).rejects.toThrow(`"reviewer" has 900`);
  lags = lag("reviewer", 2_000);
  await clock.advance(10_000);
  await expect(throttle.enter("acme", DRAFT)).rejects.toMatchObject({
    code: "overloaded",
    message: expect.stringMatching(/"reviewer" is 200 behind/),
  });
});

test("asks whose tasks wait only when those of all orgs reach the soft threshold", async () => {
  lags = lag("reviewer", 99);
  expect(await held()).toBe(0);
  expect(waitingAsked).toBe(0);
  lags = lag("reviewer", 200);
  await clock.advance(10_000);
  await expect(throttle.enter("acme", DRAFT)).rejects.toMatchObject({ code: "limit_exceeded" });
  expect(waitingAsked).toBe(1);
});

test("refuses thresholds in the wrong order", async () => {
  const context = await testContext({ clock });
  const board = { lag: async () => [], waiting: async () => new Map() };
  expect(() => openThrottle(board, context, { soft: 5, hard: 5, agents: [] })).toThrow(TypeError);
});
