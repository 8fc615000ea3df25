import fc from "fast-check";
import { expect, test } from "vitest";
import { boardStreamId } from "./stream_id.ts";

const LEGAL = /^[\w.:@-]{1,200}$/;
const name = fc.string({ unit: "grapheme", minLength: 1, maxLength: 256 });

test("ordinary names stay as they are", () => {
  expect(boardStreamId("acme", "request-1")).toBe("acme:request-1");
});

test.each([
  ["acme", "hello world", "acme:hello@20world"],
  ["Acme Inc", "c", "Acme@20Inc:c"],
  ["co:x", "c", "co@3ax:c"],
  ["a@b", "é", "a@40b:@c3@a9"],
])("%j and %j become a legal id", (org, correlation, id) => {
  expect(boardStreamId(org, correlation)).toBe(id);
  expect(id).toMatch(LEGAL);
});

test("every name has a legal id, and no two names share one", () => {
  fc.assert(
    fc.property(name, name, name, name, (org, correlation, otherOrg, other) => {
      const id = boardStreamId(org, correlation);
      expect(id).toMatch(LEGAL);
      const same = org === otherOrg && correlation === other;
      expect(boardStreamId(otherOrg, other) === id).toBe(same);
    }),
  );
  expect(boardStreamId("a", "b:c")).not.toBe(boardStreamId("a:b", "c"));
  expect(boardStreamId("a", "x".repeat(256))).not.toBe(boardStreamId("a", "x".repeat(255)));
});
