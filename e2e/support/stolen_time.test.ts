import { expect, test } from "vitest";
import { parseTicks, StolenTime } from "./stolen_time.ts";

test("time that nobody wanted counts neither as had nor as stolen", () => {
  expect(parseTicks("cpu  10 2 3 4000 500 1 4 80 7 0")).toEqual({ wanted: 100, stolen: 80 });
});

test("a share is that of the samples around it", () => {
  const ticks = [
    { wanted: 0, stolen: 0 },
    { wanted: 100, stolen: 0 },
    { wanted: 200, stolen: 80 },
    { wanted: 300, stolen: 100 },
  ];
  const stolen = new StolenTime(() => ticks.shift()!);
  for (const at of [0, 1_000, 2_000, 3_000]) stolen.sample(at);
  expect(stolen.share(1_000, 2_000)).toBe(0.8);
  expect(stolen.share(1_500, 2_500)).toBe(0.5);
  expect(stolen.share(-5_000, 9_000)).toBeCloseTo(1 / 3);
});

test("where nothing is known nothing was stolen", () => {
  const stolen = new StolenTime(() => ({ wanted: 0, stolen: 0 }));
  expect(stolen.share(0, 1_000)).toBe(0);
  stolen.sample(0);
  stolen.sample(1_000);
  expect(stolen.share(0, 1_000)).toBe(0);
});
