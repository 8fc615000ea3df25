import { expect, test } from "vitest";
import { isTextBefore, trackWidth } from "./timeline_text.ts";

test("a text stands after its bar as long as it fits there", () => {
  expect(isTextBefore("published by writer", 600, 140)).toBe(false);
});

test("a text that would be cut off stands before its bar", () => {
  expect(isTextBefore("published by writer", 600, 90)).toBe(true);
});

test("a text that fits nowhere has the side with more room", () => {
  expect(isTextBefore("published by writer", 40, 90)).toBe(false);
});

test("the names never take all of a timeline, and it is never less than nothing", () => {
  expect(trackWidth(1_000)).toBeGreaterThan(500);
  expect(trackWidth(0)).toBe(0);
});
