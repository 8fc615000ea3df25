import { expect, test } from "vitest";
import { Lanes } from "./lanes.ts";

function all(lanes: Lanes<number>): number[] {
  const items: number[] = [];
  for (let next = lanes.next(); next; next = lanes.next()) items.push(next.item);
  return items;
}

test("lanes run beside each other, and the items of a lane one after the other", () => {
  const lanes = new Lanes<number>();
  for (const [lane, item] of [
    ["a", 1],
    ["a", 2],
    ["b", 3],
    ["b", 4],
  ] as const)
    lanes.add(lane, item);
  expect(all(lanes)).toEqual([1, 3]);
  expect(lanes.waiting).toBe(2);
  lanes.release("b");
  expect(all(lanes)).toEqual([4]);
  lanes.release("a");
  expect(all(lanes)).toEqual([2]);
});

test("what comes to a busy lane waits for it", () => {
  const lanes = new Lanes<number>();
  lanes.add("a", 1);
  expect(all(lanes)).toEqual([1]);
  lanes.add("a", 2);
  expect(lanes.hasReady).toBe(false);
  lanes.release("a");
  expect(all(lanes)).toEqual([2]);
});

test("an item that is put back comes before all others of its lane", () => {
  const lanes = new Lanes<number>();
  for (const item of [1, 2, 3]) lanes.add("a", item);
  expect(all(lanes)).toEqual([1]);
  lanes.putBack("a", 1);
  expect(all(lanes)).toEqual([1]);
  lanes.release("a");
  expect(all(lanes)).toEqual([2]);
});

test("lanes that have been waiting longest go first", () => {
  const lanes = new Lanes<number>();
  for (const item of [1, 2]) lanes.add("a", item);
  lanes.add("b", 3);
  expect(lanes.next()?.item).toBe(1);
  lanes.release("a");
  expect(all(lanes)).toEqual([3, 2]);
});
