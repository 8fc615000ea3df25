import fc from "fast-check";
import { expect, test } from "vitest";
import { derivedId } from "./derived_id.ts";

const V8 = /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

test("derives a version 8 UUID that keeps the first 48 bits, and is always the same", () => {
  fc.assert(
    fc.property(fc.uuid({ version: 7 }), fc.string(), (like, name) => {
      const id = derivedId(like, name);
      expect(id).toMatch(V8);
      expect(id.slice(0, 13)).toBe(like.slice(0, 13));
      expect(derivedId(like, name)).toBe(id);
    }),
  );
});

test("derives an id from text that is not a UUID too", () => {
  fc.assert(fc.property(fc.string(), fc.string(), (like, name) => V8.test(derivedId(like, name))));
});

test("derives another id for another name", () => {
  const like = "01890a5d-ac96-774b-bcce-b302099a8057";
  const ids = Array.from({ length: 1_000 }, (_, index) => derivedId(like, `task:${index}`));
  expect(new Set(ids).size).toBe(1_000);
});
