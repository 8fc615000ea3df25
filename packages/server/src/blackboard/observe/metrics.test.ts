import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import type { BreakerState } from "../work/breaker.ts";
import { openSlots } from "../work/slots.ts";
import { boardMetrics, cachedLag, showAgent, showLag, showSlots } from "./metrics.ts";

const LAG: PartitionLagJson[] = [
  { reader: "router", topic: "artifacts", partition: 0, lag: "3", lag_high: "5" },
  { reader: "reviewer", topic: "tasks.reviewer", partition: 2 },
];

async function opened() {
  const context = await testContext({ clock: new ManualClock() });
  return { context, metrics: boardMetrics(context.telemetry, ["reviewer"], ["Draft"]) };
}

test("starts the counters of an agent at zero", async () => {
  const { context } = await opened();
  const text = await context.telemetry.scrape();
  for (const name of ["routed", "dead_letters", "dedup_hits", "timeouts", "abandoned"])
    expect(text).toMatch(new RegExp(`^khala_board_${name}_total\\{agent="reviewer"\\} 0`, "m"));
  expect(text).toMatch(/^khala_board_retries_total\{agent="reviewer",kind="rate_limited"\} 0/m);
});

test("counts artifacts by the app's types, and others without their names", async () => {
  const { context, metrics } = await opened();
  for (let index = 0; index < 150; index++) metrics.published(`Secret${index}`);
  for (let times = 0; times < 2; times++) metrics.published("Draft");
  const text = await context.telemetry.scrape();
  expect(text).toMatch(/^khala_board_artifacts_total\{type="Draft"\} 2/m);
  expect(text).toMatch(/^khala_board_artifacts_total\{type="other"\} 150/m);
  expect(text).not.toContain("Secret");
});

test("shows breakers, slots and running tasks as they are at the scrape", async () => {
  const { context, metrics } = await opened();
  let state: BreakerState = "closed";
  const slots = openSlots(3);
  showAgent(metrics, "reviewer", { breakers: { state: () => state, open: () => 3 }, running: () => 4 });
  showSlots(metrics, slots);
  await slots.take(0, new AbortController().signal);
  for (const [next, number] of [
    ["half_open", 1],
    ["open", 2],
    ["closed", 0],
  ] as const) {
    state = next;
    const text = await context.telemetry.scrape();
    expect(text).toMatch(new RegExp(`^khala_board_breaker\\{agent="reviewer"\\} ${number}`, "m"));
    expect(text).toMatch(/^khala_board_breakers_open\{agent="reviewer"\} 3/m);
    expect(text).toMatch(/^khala_board_running\{agent="reviewer"\} 4/m);
    expect(text).toMatch(/^khala_board_slots_free(\{\})? 2/m);
  }
});

test("shows lag to the last stable offset and to the high watermark", async () => {
  const { context, metrics } = await opened();
  showLag(metrics, context, async () => LAG);
  const text = await context.telemetry.scrape();
  expect(text).toMatch(/^khala_board_lag\{reader="router",topic="artifacts",partition="0"\} 3/m);
  expect(text).toMatch(/^khala_board_lag_high\{reader="router",topic="artifacts",partition="0"\} 5/m);
  expect(text).toMatch(/^khala_board_lag\{reader="reviewer",topic="tasks.reviewer",partition="2"\} 0/m);
});

test("a failed read of the lag does not affect the other metrics", async () => {
  const { context, metrics } = await opened();
  showLag(metrics, context, () => Promise.reject(new Error("no broker")));
  expect(await context.telemetry.scrape()).toContain("khala_board_routed_total");
});

test("reads the lag once for all callers within a few seconds, and again after a failure", async () => {
  const clock = new ManualClock();
  let reads = 0;
  let fails = false;
  const lag = cachedLag(
    {
      async lag() {
        reads++;
        if (fails) throw new Error("no broker");
        return LAG;
      },
    },
    { clock },
    5_000,
  );
  expect(await Promise.all([lag(), lag()])).toEqual([LAG, LAG]);
  await clock.advance(4_999);
  await lag();
  expect(reads).toBe(1);
  await clock.advance(1);
  fails = true;
  await expect(lag()).rejects.toThrow("no broker");
  fails = false;
  expect(await lag()).toBe(LAG);
  expect(reads).toBe(3);
});
