import fc from "fast-check";
import { expect, test } from "vitest";
import { backoff } from "./backoff.ts";

test("a delay is at least half the base and at most the ceiling of its attempt", () => {
  const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
  fc.assert(
    fc.property(fc.nat(2_000), chance, (attempt, random) => {
      const delay = backoff(attempt, () => random, { base: 100, cap: 5_000 });
      expect(delay).toBeGreaterThanOrEqual(50);
      expect(delay).toBeLessThanOrEqual(Math.max(50, Math.min(5_000, 100 * 2 ** attempt)));
    }),
  );
});

test("delays grow up to the cap, with jitter", () => {
  const most = [0, 1, 2, 3, 10].map((attempt) => backoff(attempt, () => 1, { base: 100, cap: 1_000 }));
  expect(most).toEqual([100, 200, 400, 800, 1_000]);
  expect(backoff(3, () => 0.5, { base: 100, cap: 1_000 })).toBe(400);
});
