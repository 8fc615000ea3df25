import { expect, test } from "vitest";
import { ArrangedLists, partOf, topicAndQuery } from "./lists.ts";
import type { Item, ListSnapshot } from "./plane_port.ts";

function listOf(documents: Readonly<Record<string, unknown>>): ListSnapshot {
  const items = Object.entries(documents).map(([key, data]): Item => ({ key, version: "1", data }));
  return { items, phase: "live" };
}
const keys = ({ items }: ListSnapshot) => items.map(({ key }) => key).join("");

test("orders a list like the server: null, booleans, numbers, text, and ties by key", () => {
  const ranks = { a: "b", b: "a", c: 10, d: 9, e: -1, f: true, g: false, h: null, i: [1], j: 9 };
  const list = listOf(Object.fromEntries(Object.entries(ranks).map(([key, rank]) => [key, { rank }])));
  const lists = new ArrangedLists();
  expect(keys(lists.get(list, { order: "rank" as never }))).toBe("higfedjcba");
  expect(keys(lists.get(list, { order: "-rank" as never }))).toBe("abcjdefgih");
});

test("filters compare values as text, and the limit counts matching items", () => {
  const list = listOf({ a: { n: 1 }, b: { n: "1" }, c: { n: 2 }, d: "1", e: { n: null } });
  const lists = new ArrangedLists();
  expect(keys(lists.get(list, { filter: { n: 1 } as never }))).toBe("ab");
  expect(keys(lists.get(list, { filter: { n: "1" } as never, limit: 1 }))).toBe("a");
  expect(keys(lists.get(list, { filter: { n: "null" } as never }))).toBe("");
  expect(lists.get(list, { filter: { n: undefined } as never })).toBe(list);
});

test("returns the same list object until one of its items changes", () => {
  const lists = new ArrangedLists();
  const before = listOf({ a: { open: true, rank: 1 }, b: { open: false, rank: 2 } });
  const options = { filter: { open: true }, order: "rank" } as never;
  const open = lists.get(before, options);
  expect(lists.get(before, { order: "rank", filter: { open: true } } as never)).toBe(open);
  const changed = { ...before, items: [before.items[0]!, { key: "b", version: "2", data: { open: false } }] };
  expect(lists.get(changed, options)).toBe(open);
  const offline = { ...changed, phase: "offline" as const };
  expect(lists.get(offline, options)).toMatchObject({ phase: "offline" });
  expect(lists.get(offline, options).items).toBe(open.items);
});

test("encodes a part as a name, and decodes it into a query", () => {
  expect(partOf("app.tasks")).toBe("app.tasks");
  expect(partOf("app.tasks", { project_id: "a&b ä" })).toBe("app.tasks?project_id=a%26b%20%C3%A4");
  expect(topicAndQuery("app.tasks?project_id=a%26b%20%C3%A4")).toEqual({
    topic: "app.tasks",
    query: { project_id: "a&b ä" },
  });
  expect(partOf("app.tasks", { b: "2", a: "1&" })).toBe("app.tasks?a=1%26&b=2");
  expect(() => partOf("app.tasks", { a: undefined } as never)).toThrow(
    "where.a of app.tasks must be a string",
  );
});
