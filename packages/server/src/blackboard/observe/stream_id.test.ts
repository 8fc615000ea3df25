import fc from "fast-check";
import { expect, test } from "vitest";
import { boardStreamId } from "./stream_id.ts";

const LEGAL = /^[\w.:@-]{1,200}$/;
const name = fc.string({ unit: "grapheme", minLength: 1, maxLength: 256 });

test("keeps ordinary names", () => {
  expect(boardStreamId("request-1")).toBe("request-1");
  expect(boardStreamId("x:1")).toBe("x:1");
});

test.each([
  ["hello world", "hello@20world"],
  ["a@b", "a@40b"],
  ["é", "@c3@a9"],
])("encodes %j as a legal id", (correlation, id) => {
  expect(boardStreamId(correlation)).toBe(id);
  expect(id).toMatch(LEGAL);
});

test("gives every name a legal and unique id", () => {
  fc.assert(
    fc.property(name, name, (correlation, other) => {
      const id = boardStreamId(correlation);
      expect(id).toMatch(LEGAL);
      expect(boardStreamId(other) === id).toBe(correlation === other);
    }),
  );
  expect(boardStreamId("x".repeat(256))).not.toBe(boardStreamId("x".repeat(255)));
});
