import { expect, test } from "vitest";
import { documentColumns, fieldsOf } from "./document_columns.tsx";

const row = (id: string, preview: Record<string, unknown>) => ({
  doc_key: `task:${id}`,
  doc_version: "1",
  updated_at: "",
  bytes: 1,
  audience: [],
  preview,
});
const namesOf = (rows: Parameters<typeof fieldsOf>[0]) => fieldsOf(rows).map(({ name }) => name);

test("puts the identity of a document first, then its state, then the rest in order", () => {
  const rows = [row("1", { owner: "ada", status: "open", points: 3, title: "Ship" })];
  expect(namesOf(rows)).toEqual(["title", "status", "owner", "points"]);
});

test("does not repeat the key, or show a field that few documents have", () => {
  const rows = [
    row("1", { id: "1", a: 1 }),
    row("2", { id: "2", a: 1, rare: 1 }),
    row("3", { id: "3", a: 1 }),
  ];
  expect(namesOf(rows)).toEqual(["a"]);
});

test("shows at most five fields in a row", () => {
  const many = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`f${i}`, i]));
  expect(namesOf([row("1", many)])).toEqual(["f0", "f1", "f2", "f3", "f4"]);
});

test("aligns the columns of numbers as other tables do, and no others", () => {
  const rows = [row("1", { title: "Ship", points: 3, code: 7 }), row("2", { title: "Fix", code: "x" })];
  const columns = documentColumns(fieldsOf(rows)).filter(({ head }) => /Title|Points|Code/.test(head));
  expect(columns.map(({ head, align }) => [head, align])).toEqual([
    ["Title", "start"],
    ["Points", "end"],
    ["Code", "start"],
  ]);
});
