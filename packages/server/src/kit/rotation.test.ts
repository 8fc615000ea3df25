import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { visitInRotation } from "./rotation.ts";

function rotate(size: number) {
  const clock = new ManualClock();
  const all = new Set(Array.from({ length: size }, (_, i) => i));
  const visits: { readonly each: number; readonly at: number }[] = [];
  const end = visitInRotation(clock, all, { everyMs: 1_000, batchSize: 32 }, (each, at) =>
    visits.push({ each, at }),
  );
  return { clock, all, visits, end };
}

test.each([1, 32, 33, 100, 1_000])("visits each of %i in every rotation, a batch at a time", async (size) => {
  const { clock, visits, end } = rotate(size);
  await clock.advance(4_000);
  end();
  const byItem = Map.groupBy(visits, ({ each }) => each);
  expect(byItem.size).toBe(size);
  for (const each of byItem.values()) expect(each.length).toBeGreaterThanOrEqual(3);
  const together = [...Map.groupBy(visits, ({ at }) => at).values()];
  expect(Math.max(...together.map(({ length }) => length))).toBeLessThanOrEqual(32);
});

test("visits added items, skips removed ones and misses none", async () => {
  const { clock, all, visits, end } = rotate(100);
  await clock.advance(1_300);
  for (let i = 0; i < 50; i++) all.delete(i);
  for (let i = 200; i < 250; i++) all.add(i);
  visits.length = 0;
  await clock.advance(3_000);
  expect(new Set(visits.map(({ each }) => each))).toEqual(all);
  all.clear();
  visits.length = 0;
  await clock.advance(3_000);
  expect(visits).toEqual([]);
  end();
  expect(clock.pending).toBe(0);
});
