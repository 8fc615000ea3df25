import fc from "fast-check";
import { expect, test } from "vitest";
import { boardStreamId } from "./stream_id.ts";

const LEGAL = /^[\w.:@-]{1,200}$/;
const name = fc.string({ unit: "grapheme", minLength: 1, maxLength: 256 });

test("ordinary names stay as they are", () => {
  expect(boardStreamId("request-1")).toBe("request-1");
  expect(boardStreamId("x:1")).toBe("x:1");
});

test.each([
  ["hello world", "hello@20world"],
  ["a@b", "a@40b"],
  ["é", "@c3@a9"],
])("%j becomes a legal id", (correlation, id) => {
  expect(boardStreamId(correlation)).toBe(id);
  expect(id).toMatch(LEGAL);
});

test("every name has a legal id, and no two names share one", () => {
  fc.assert(
    fc.property(name, name, (correlation, other) => {
      const id = boardStreamId(correlation);
      expect(id).toMatch(LEGAL);
      expect(boardStreamId(other) === id).toBe(correlation === other);
    }),
  );
  expect(boardStreamId("x".repeat(256))).not.toBe(boardStreamId("x".repeat(255)));
});
