import { expect, test } from "vitest";
import { mostStolen, quietest } from "./quiet.ts";

/** Windows with these shares of stolen CPU, each of which answers its number, and takes so long. */
function measured(effort: { rounds: number; quick: boolean }, shares: readonly number[], ms = 0) {
  let n = 0;
  const watch = () => () => shares[n - 1] ?? 1;
  return quietest(effort, async () => n++, { watch, now: () => n * ms });
}

test("on a machine of its own each window counts, and no more are measured", async () => {
  const windows = await measured({ rounds: 3, quick: false }, [0.01, 0.05, 0]);
  expect(windows.map(({ value }) => value).sort()).toEqual([0, 1, 2]);
  expect(mostStolen(windows)).toBe(0.05);
});

test("windows that others disturbed are measured again", async () => {
  const windows = await measured({ rounds: 2, quick: false }, [0.4, 0.01, 0.06, 0.02]);
  expect(windows.map(({ value }) => value)).toEqual([1, 3]);
});

test("where others never rest, those count that were disturbed least, after four times as many", async () => {
  const shares = [0.9, 0.3, 0.8, 0.7, 0.2, 0.6, 0.5, 0.4];
  const windows = await measured({ rounds: 2, quick: false }, shares);
  expect(windows.map(({ value }) => value)).toEqual([4, 1]);
  expect(mostStolen(windows, [])).toBe(0.3);
});

test("after a minute no more are measured than there are rounds", async () => {
  const windows = await measured({ rounds: 3, quick: false }, [0.9, 0.8, 0.7, 0.6, 0.01, 0.01, 0.01], 16_000);
  expect(windows.map(({ value }) => value)).toEqual([3, 2, 1]);
  expect(await measured({ rounds: 3, quick: false }, [0.9, 0.8, 0.7], 61_000)).toHaveLength(3);
});

test("a short look is not repeated", async () => {
  expect(await measured({ rounds: 2, quick: true }, [0.9, 0.8, 0])).toHaveLength(2);
});
