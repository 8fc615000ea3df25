import { expect, test } from "vitest";
import { OffsetTracker } from "./tracker.ts";

function taken(...offsets: number[]): OffsetTracker {
  const tracker = new OffsetTracker();
  for (const offset of offsets) tracker.take(offset, 10);
  return tracker;
}

test("nothing is committed before the first record", () => {
  expect(new OffsetTracker().position()).toBeUndefined();
});

test("what is committed never passes an unfinished record, however many behind it are done", () => {
  const tracker = taken(5, 6, 7, 8);
  for (const offset of [8, 6, 7]) tracker.finish(offset);
  expect(tracker.position()).toBe(5);
  tracker.finish(5);
  expect(tracker.position()).toBe(9);
});

test("gaps that the markers of transactions leave are passed", () => {
  const tracker = taken(0, 2, 3, 9);
  tracker.finish(0);
  expect(tracker.position()).toBe(2);
  tracker.finish(2);
  tracker.finish(3);
  expect(tracker.position()).toBe(9);
  tracker.finish(9);
  expect(tracker.position()).toBe(10);
});

test("the position that would follow counts records that are being finished, and changes nothing", () => {
  const tracker = taken(0, 1, 2);
  expect(tracker.position(new Set([0, 1]))).toBe(2);
  expect(tracker.position(new Set([1]))).toBe(0);
  expect(tracker.position()).toBe(0);
});

test("a record that is brought again is not taken twice", () => {
  const tracker = taken(0, 1);
  tracker.finish(0);
  expect(tracker.take(0, 10)).toBe(false);
  expect(tracker.take(1, 10)).toBe(false);
  expect(tracker.take(2, 10)).toBe(true);
  expect(tracker.position()).toBe(1);
});

test("the span is counted from the lowest unfinished record, the size of what is unfinished only", () => {
  const tracker = taken(0, 1, 2, 3);
  for (const offset of [1, 2, 3]) tracker.finish(offset);
  expect([tracker.span, tracker.open, tracker.bytes]).toEqual([4, 1, 10]);
  tracker.finish(0);
  expect([tracker.span, tracker.open, tracker.bytes]).toEqual([0, 0, 0]);
});
