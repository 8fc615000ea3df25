import { expect, test } from "vitest";
import { isTextBefore, trackWidth } from "./timeline.tsx";

test("a text is after its bar where it fits", () => {
  expect(isTextBefore("published by writer", 600, 140)).toBe(false);
});

test("a text that would be cut off is before its bar", () => {
  expect(isTextBefore("published by writer", 600, 90)).toBe(true);
});

test("a text that fits nowhere is on the side with more space", () => {
  expect(isTextBefore("published by writer", 40, 90)).toBe(false);
});

test("labels never take all of a timeline, and its width is never negative", () => {
  expect(trackWidth(1_000)).toBeGreaterThan(500);
  expect(trackWidth(0)).toBe(0);
});
