import { ManualClock } from "@khala/testing/kit/manual_clock";
import { expect, test } from "vitest";
import { lookAround } from "./rounds.ts";

function looking(size: number) {
  const clock = new ManualClock();
  const all = new Set(Array.from({ length: size }, (_, i) => i));
  const looks: { readonly each: number; readonly at: number }[] = [];
  const end = lookAround(clock, all, { everyMs: 1_000, atOnce: 32 }, (each, at) => looks.push({ each, at }));
  return { clock, all, looks, end };
}

test.each([1, 32, 33, 100, 1_000])(
  "each of %i is looked at in every round, a few at a time",
  async (size) => {
    const { clock, looks, end } = looking(size);
    await clock.advance(4_000);
    end();
    const times = Map.groupBy(looks, ({ each }) => each);
    expect(times.size).toBe(size);
    for (const each of times.values()) expect(each.length).toBeGreaterThanOrEqual(3);
    const together = [...Map.groupBy(looks, ({ at }) => at).values()];
    expect(Math.max(...together.map(({ length }) => length))).toBeLessThanOrEqual(32);
  },
);

test("who comes is looked at, who has gone is not, and nobody is passed over because of them", async () => {
  const { clock, all, looks, end } = looking(100);
  await clock.advance(1_300);
  for (let i = 0; i < 50; i++) all.delete(i);
  for (let i = 200; i < 250; i++) all.add(i);
  looks.length = 0;
  await clock.advance(3_000);
  expect(new Set(looks.map(({ each }) => each))).toEqual(all);
  all.clear();
  looks.length = 0;
  await clock.advance(3_000);
  expect(looks).toEqual([]);
  end();
  expect(clock.pending).toBe(0);
});
