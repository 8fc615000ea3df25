import { expect, test } from "vitest";
import { newest } from "./newest.ts";

const times = (count: number, ...items: readonly string[]) =>
  newest(items, (item) => item.slice(0, 1), count);

test("puts the latest first, up to the count", () => {
  expect(times(3, "2", "5", "1", "4", "3")).toEqual(["5", "4", "3"]);
  expect(times(3, "2", "5")).toEqual(["5", "2"]);
  expect(times(3)).toEqual([]);
});

test("keeps the order of items with equal times", () => {
  expect(times(2, "1a", "1b", "1c")).toEqual(["1a", "1b"]);
  expect(times(3, "1a", "2a", "1b", "2b")).toEqual(["2a", "2b", "1a"]);
});
