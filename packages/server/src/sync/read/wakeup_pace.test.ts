import { expect, test } from "vitest";
import { mayWaitMs, tellsItselfAfterMs } from "./wakeup_pace.ts";

test("a commit of a few updates is told of at the usual pace", () => {
  expect([tellsItselfAfterMs(1, 100), tellsItselfAfterMs(4, 0), mayWaitMs(4)]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
});

test("a crowd's commits tell of themselves before a wakeup of their own would go, while commits are quick", () => {
  for (const tookMs of [0, 1]) expect(tellsItselfAfterMs(5, tookMs)).toBeLessThan(mayWaitMs(5)!);
});

test("a commit that was slow keeps others from telling for a quarter of the time at most", () => {
  for (const tookMs of [2, 20, 200]) expect(tellsItselfAfterMs(16, tookMs)).toBe(4 * tookMs);
});
