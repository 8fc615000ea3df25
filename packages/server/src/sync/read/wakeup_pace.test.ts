import { expect, test } from "vitest";
import { mayWaitMs, tellsItselfAfterMs } from "./wakeup_pace.ts";

test("announces a commit of a few updates at the usual pace", () => {
  expect([tellsItselfAfterMs(1, 100), tellsItselfAfterMs(4, 0), mayWaitMs(4)]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
});

test("a commit of many updates may announce itself before its own wakeup is sent, while commits are quick", () => {
  for (const tookMs of [0, 1]) expect(tellsItselfAfterMs(5, tookMs)).toBeLessThan(mayWaitMs(5)!);
});

test("after a slow commit, waits four times as long before a commit announces itself", () => {
  for (const tookMs of [2, 20, 200]) expect(tellsItselfAfterMs(16, tookMs)).toBe(4 * tookMs);
});
