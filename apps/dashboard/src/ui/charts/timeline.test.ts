import { expect, test } from "vitest";
import { isTextBefore, trackWidth } from "./timeline.tsx";

test("puts a text after its bar where it fits", () => {
  expect(isTextBefore("published by writer", 600, 140)).toBe(false);
});

test("puts a text before its bar where it would be cut off", () => {
  expect(isTextBefore("published by writer", 600, 90)).toBe(true);
});

test("puts a text that fits nowhere on the side with more space", () => {
  expect(isTextBefore("published by writer", 40, 90)).toBe(false);
});

test("leaves room for the timeline beside its labels, and never has a negative width", () => {
  expect(trackWidth(1_000)).toBeGreaterThan(500);
  expect(trackWidth(0)).toBe(0);
});
