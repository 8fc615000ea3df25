import { expect, test } from "vitest";
import { Lanes, OffsetTracker } from "./partition_work.ts";

function taken(...offsets: number[]): OffsetTracker {
  const tracker = new OffsetTracker();
  for (const offset of offsets) tracker.take(offset, 10);
  return tracker;
}

test("commits nothing before the first record", () => {
  expect(new OffsetTracker().position()).toBeUndefined();
});

test("the committed offset never passes an unfinished record", () => {
  const tracker = taken(5, 6, 7, 8);
  for (const offset of [8, 6, 7]) tracker.finish(offset);
  expect(tracker.position()).toBe(5);
  tracker.finish(5);
  expect(tracker.position()).toBe(9);
});

test("passes over the gaps that transaction markers leave", () => {
  const tracker = taken(0, 2, 3, 9);
  tracker.finish(0);
  expect(tracker.position()).toBe(2);
  tracker.finish(2);
  tracker.finish(3);
  expect(tracker.position()).toBe(9);
  tracker.finish(9);
  expect(tracker.position()).toBe(10);
});

test("computes the next position with given records as finished, without changing it", () => {
  const tracker = taken(0, 1, 2);
  expect(tracker.position(new Set([0, 1]))).toBe(2);
  expect(tracker.position(new Set([1]))).toBe(0);
  expect(tracker.position()).toBe(0);
});

test("takes a record once that is delivered twice", () => {
  const tracker = taken(0, 1);
  tracker.finish(0);
  expect(tracker.take(0, 10)).toBe(false);
  expect(tracker.take(1, 10)).toBe(false);
  expect(tracker.take(2, 10)).toBe(true);
  expect(tracker.position()).toBe(1);
});

test("counts the span from the lowest unfinished record, and the bytes of unfinished records", () => {
  const tracker = taken(0, 1, 2, 3);
  for (const offset of [1, 2, 3]) tracker.finish(offset);
  expect([tracker.span, tracker.open, tracker.bytes]).toEqual([4, 1, 10]);
  tracker.finish(0);
  expect([tracker.span, tracker.open, tracker.bytes]).toEqual([0, 0, 0]);
});

function all(lanes: Lanes<number>): number[] {
  const items: number[] = [];
  for (let next = lanes.next(); next; next = lanes.next()) items.push(next.item);
  return items;
}

test("runs lanes in parallel, and the items of a lane one after the other", () => {
  const lanes = new Lanes<number>();
  for (const [lane, item] of [
    ["a", 1],
    ["a", 2],
    ["b", 3],
    ["b", 4],
  ] as const)
    lanes.add(lane, item);
  expect(all(lanes)).toEqual([1, 3]);
  lanes.release("b");
  expect(all(lanes)).toEqual([4]);
  lanes.release("a");
  expect(all(lanes)).toEqual([2]);
});

test("an item waits while its lane is busy", () => {
  const lanes = new Lanes<number>();
  lanes.add("a", 1);
  expect(all(lanes)).toEqual([1]);
  lanes.add("a", 2);
  expect(lanes.hasReady).toBe(false);
  lanes.release("a");
  expect(all(lanes)).toEqual([2]);
});

test("runs an item that is put back before the others of its lane", () => {
  const lanes = new Lanes<number>();
  for (const item of [1, 2, 3]) lanes.add("a", item);
  expect(all(lanes)).toEqual([1]);
  lanes.putBack("a", 1);
  expect(all(lanes)).toEqual([1]);
  lanes.release("a");
  expect(all(lanes)).toEqual([2]);
});

test("takes the longest waiting lane first", () => {
  const lanes = new Lanes<number>();
  for (const item of [1, 2]) lanes.add("a", item);
  lanes.add("b", 3);
  expect(lanes.next()?.item).toBe(1);
  lanes.release("a");
  expect(all(lanes)).toEqual([3, 2]);
});
