import { expect, test } from "vitest";
import { nextSort, sortRows } from "./sort.ts";

interface Row {
  readonly name?: string;
  readonly count: number;
}
const columns = [
  { head: "Name", cell: () => "", sortBy: ({ name }: Row) => name },
  { head: "Count", cell: () => "", sortBy: ({ count }: Row) => count },
  { head: "Other", cell: () => "" },
];
const rows: readonly Row[] = [{ name: "b10", count: 2 }, { count: 10 }, { name: "b9", count: 1 }];

test("a click sorts ascending, then descending, then not at all", () => {
  expect([undefined, "Name", "-Name", "Count"].map((sort) => nextSort("Name", sort))).toEqual([
    "Name",
    "-Name",
    undefined,
    "Name",
  ]);
});

test("sorts numbers in text as numbers, and rows without a value last in both directions", () => {
  expect(sortRows(rows, columns, "Name").map(({ name }) => name)).toEqual(["b9", "b10", undefined]);
  expect(sortRows(rows, columns, "-Name").map(({ name }) => name)).toEqual(["b10", "b9", undefined]);
  expect(sortRows(rows, columns, "-Count").map(({ count }) => count)).toEqual([10, 2, 1]);
});

test("keeps the order of rows without a sorted column", () => {
  expect(sortRows(rows, columns, undefined)).toBe(rows);
  expect(sortRows(rows, columns, "Other")).toBe(rows);
});
