import { expect, test } from "vitest";
import { type Column, fitColumns } from "./columns.ts";

const column = (head: string, width: number, wideOnly = false): Column<never> => ({
  head,
  width,
  wideOnly,
  cell: () => head,
});
const COLUMNS = [
  column("name", 100),
  column("state", 100),
  column("done", 80, true),
  column("dead", 80, true),
  column("action", 90),
];
const shown = (width: number, withCheckbox = false) =>
  fitColumns(COLUMNS, width, withCheckbox).map(({ head }) => head);

test("shows all columns where they fit", () => {
  expect(shown(600)).toEqual(["name", "state", "done", "dead", "action"]);
});

test("drops the last wide-only column first, and keeps the action", () => {
  expect(shown(490)).toEqual(["name", "state", "done", "action"]);
  expect(shown(380)).toEqual(["name", "state", "action"]);
});

test("counts the column of checkboxes", () => {
  expect(shown(460)).toContain("done");
  expect(shown(460, true)).not.toContain("done");
});
