import fc from "fast-check";
import { expect, test } from "vitest";
import { copyOf } from "./agent_task.ts";

test("a copy of JSON is what its text says, and shares nothing with it", () => {
  fc.assert(
    fc.property(fc.json(), (text) => {
      const value: unknown = JSON.parse(text);
      const before = JSON.stringify(value);
      const copy = copyOf(value);
      expect(JSON.stringify(copy)).toBe(before);
      spoil(copy);
      expect(JSON.stringify(value)).toBe(before);
    }),
  );
});

test("a member that is undefined is not there, as in its text", () => {
  expect(Object.keys(copyOf({ a: undefined, b: { c: undefined, d: 1 } }).b)).toEqual(["d"]);
  expect(copyOf({ a: undefined })).toStrictEqual({});
});

test("a member called __proto__ is a member, and nobody's prototype", () => {
  const copy = copyOf(JSON.parse('{"__proto__": {"admin": true}, "a": {"__proto__": [1]}}'));
  expect(copy.admin).toBeUndefined();
  expect(Object.getPrototypeOf(copy)).toBe(Object.prototype);
  expect(JSON.stringify(copy)).toBe('{"__proto__":{"admin":true},"a":{"__proto__":[1]}}');
});

/** Changes everything that can be changed. */
function spoil(value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  for (const member of Object.values(value)) spoil(member);
  if (Array.isArray(value)) value.push("spoilt");
  else Object.assign(value, { spoilt: true });
}
