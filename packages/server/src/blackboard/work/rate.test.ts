import { ManualClock } from "@khala/test-support/kit/manual_clock";
import fc from "fast-check";
import { expect, test } from "vitest";
import { openRate } from "./rate.ts";

test("delays starts beyond the limit until the oldest is out of the window", async () => {
  const clock = new ManualClock();
  const rate = openRate({ limit: 2, per: 1_000 }, clock);
  expect(rate.take()).toBe(0);
  await clock.advance(400);
  expect([rate.wait(), rate.take(), rate.take(), rate.wait()]).toEqual([0, 0, 600, 600]);
  await clock.advance(600);
  expect([rate.take(), rate.take()]).toEqual([0, 400]);
});

test("checking the rate uses no start", () => {
  const rate = openRate({ limit: 1, per: 1_000 }, new ManualClock());
  expect([rate.wait(), rate.wait(), rate.take(), rate.wait()]).toEqual([0, 0, 0, 1_000]);
});

test("no window of that length has more starts than the limit", async () => {
  const pauses = fc.array(fc.integer({ min: 0, max: 300 }), { maxLength: 60 });
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 5 }), pauses, async (limit, steps) => {
      const clock = new ManualClock();
      const rate = openRate({ limit, per: 1_000 }, clock);
      const starts: number[] = [];
      for (const ms of steps) {
        await clock.advance(ms);
        if (rate.take() === 0) starts.push(clock.now());
      }
      for (const start of starts)
        expect(starts.filter((at) => at >= start && at < start + 1_000).length).toBeLessThanOrEqual(limit);
    }),
  );
});
