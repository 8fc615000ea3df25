import { canonicalJson } from "@khala/contracts";
import { describe, expect, test } from "vitest";
import { surelyFits } from "./plain_json.ts";

const nested = (depth: number) => JSON.parse(`${"[".repeat(depth)}${"]".repeat(depth)}`);

describe("the bytes of JSON are counted from above", () => {
  test.each([
    ["a text", "An artifact says what somebody found out."],
    ["characters that are escaped", '\u0001\u001f"\\\n'],
    ["characters of several bytes", "žluťoučký 犬 🐎"],
    ["the longest numbers", [-Number.MAX_VALUE, 5e-324, -Math.PI * 1e-300, -0, 2 ** 66]],
    ["what is true, false or nothing", [true, false, null]],
    ["keys, and members that are not there", { "a\tb": { "🐎": [] }, gone: undefined, empty: {} }],
    ["lists in lists", [[], [[1]], nested(30)]],
  ])("%s", (_, value) => {
    const bytes = Buffer.byteLength(canonicalJson(value));
    expect(surelyFits(value, bytes - 1)).toBe(false);
    expect(surelyFits(value, 100 + 30 * bytes)).toBe(true);
  });
});

describe("takes a closer look", () => {
  test.each([
    ["half of a pair", ["\ud83d"]],
    ["half of a pair in a key", { "\udc0e": 1 }],
    ["NUL", { a: "x\0" }],
    ["NUL in a key", { "x\0": 1 }],
    ["numbers that are none", [Number.NaN]],
    ["infinity", { a: Number.POSITIVE_INFINITY }],
    ["a function", { toJSON: () => 1 }],
    ["a big integer", [1n]],
    ["nothing in a list", [undefined]],
    ["a date", { at: new Date(0) }],
    ["a map", new Map()],
    ["what has no prototype", Object.create(null)],
    ["what is nested deep", nested(200)],
  ])("%s", (_, value) => {
    expect(surelyFits(value, 1_000_000)).toBe(false);
  });

  test("circles, and no longer than it takes to come to the end of the first", () => {
    const circle: unknown[] = [];
    circle.push(circle, circle, { again: circle, andAgain: circle });
    expect(surelyFits(circle, 1_000_000)).toBe(false);
  });

  test("a value that is shared so often that its text has no end", () => {
    let shared: unknown = "x";
    for (let i = 0; i < 30; i++) shared = [shared, shared];
    expect(surelyFits(shared, 1_000_000)).toBe(false);
  });
});
