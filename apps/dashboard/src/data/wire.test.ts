import { expect, test } from "vitest";
import { complete, completeAll } from "./wire.ts";

const ITEM = {
  id: "",
  count: 0,
  tags: [""],
  meta: {} as Record<string, unknown>,
  note: undefined as unknown,
};

test("fills in absent fields from the template", () => {
  expect(complete(ITEM, { id: "a" } as Partial<typeof ITEM> as typeof ITEM)).toEqual({
    id: "a",
    count: 0,
    tags: [],
    meta: {},
    note: undefined,
  });
});

test("converts 64-bit integers to numbers, and keeps free-form fields", () => {
  const wire = { id: "a", count: "12", tags: ["x"], meta: { deep: { n: "1" } }, note: null };
  expect(complete(ITEM, wire)).toEqual({ ...wire, count: 12 });
});

test("completes nested messages and lists too", () => {
  const template = { inner: { n: 1 }, items: [{ id: "" }] };
  expect(completeAll(template, [{ inner: {}, items: [{}] }])).toEqual([
    { inner: { n: 1 }, items: [{ id: "" }] },
  ]);
  expect(completeAll(template, undefined)).toEqual([]);
});
