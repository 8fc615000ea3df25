import { expect, test } from "vitest";
import { mostStolen, quietest } from "./quiet.ts";

/** Windows with these shares of stolen CPU, each of which answers its number, and takes so long. */
function measured(effort: { rounds: number; quick: boolean }, shares: readonly number[], ms = 0) {
  let n = 0;
  const watch = () => () => shares[n - 1] ?? 1;
  return quietest(effort, async () => n++, { watch, now: () => n * ms });
}

test("counts each window of a quiet machine, and measures no more", async () => {
  const windows = await measured({ rounds: 3, quick: false }, [0.01, 0.05, 0]);
  expect(windows.map(({ value }) => value).sort()).toEqual([0, 1, 2]);
  expect(mostStolen(windows)).toBe(0.05);
});

test("measures disturbed windows again", async () => {
  const windows = await measured({ rounds: 2, quick: false }, [0.4, 0.01, 0.06, 0.02]);
  expect(windows.map(({ value }) => value)).toEqual([1, 3]);
});

test("keeps the least disturbed of four times as many windows when the machine is never quiet", async () => {
  const shares = [0.9, 0.3, 0.8, 0.7, 0.2, 0.6, 0.5, 0.4];
  const windows = await measured({ rounds: 2, quick: false }, shares);
  expect(windows.map(({ value }) => value)).toEqual([4, 1]);
  expect(mostStolen(windows, [])).toBe(0.3);
});

test("measures no more than the set rounds after a minute", async () => {
  const windows = await measured({ rounds: 3, quick: false }, [0.9, 0.8, 0.7, 0.6, 0.01, 0.01, 0.01], 16_000);
  expect(windows.map(({ value }) => value)).toEqual([3, 2, 1]);
  expect(await measured({ rounds: 3, quick: false }, [0.9, 0.8, 0.7], 61_000)).toHaveLength(3);
});

test("does not repeat a short measurement", async () => {
  expect(await measured({ rounds: 2, quick: true }, [0.9, 0.8, 0])).toHaveLength(2);
});
