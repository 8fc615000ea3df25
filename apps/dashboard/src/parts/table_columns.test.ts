import { expect, test } from "vitest";
import { type Column, fitting } from "./table_columns.ts";

const column = (id: string, width: number, wideOnly = false): Column<never> => ({
  id,
  head: id,
  width,
  wideOnly,
  cell: () => id,
});
const COLUMNS = [
  column("name", 100),
  column("state", 100),
  column("done", 80, true),
  column("dead", 80, true),
  column("action", 90),
];
const shown = (width: number, withChoice = false) => fitting(COLUMNS, width, withChoice).map(({ id }) => id);

test("where all columns fit, all are shown", () => {
  expect(shown(600)).toEqual(["name", "state", "done", "dead", "action"]);
});

test("what is for wide tables alone goes first, the last of it before the others; an action stays", () => {
  expect(shown(490)).toEqual(["name", "state", "done", "action"]);
  expect(shown(380)).toEqual(["name", "state", "action"]);
});

test("boxes to choose rows take their place too", () => {
  expect(shown(460)).toContain("done");
  expect(shown(460, true)).not.toContain("done");
});
