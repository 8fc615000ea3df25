import fc from "fast-check";
import { expect, test } from "vitest";
import { inexactInteger, inexactNumber } from "./exact_integers.ts";

test.each([
  ["9007199254740993", ""],
  ["-9007199254740992", ""],
  ['{"a":9007199254740993}', "a"],
  ['{"a":{"b c":[1,{"x":[]},"2", -123456789012345678901234567890 ]}}', 'a["b c"][3]'],
  [String.raw`{"q\"\\":["9007199254740993\\",[],9007199254740993]}`, String.raw`["q\"\\"][2]`],
  [`{"long":"${"x".repeat(1e6)}","b":[0,\n9007199254740993]}`, "b[1]"],
  [`${"[".repeat(1e5)}9007199254740993${"]".repeat(1e5)}`, `${"[0]".repeat(67).slice(0, 200)}…`],
])("names the integer rounded in %.60s", (text, path) => {
  JSON.parse(text);
  expect(inexactInteger(text)).toBe(path);
});

test.each([
  "9007199254740991",
  "-9007199254740991",
  '{"seq":"9007199254740993"}',
  '["a, 9007199254740993"]',
  '{"a":"\\\\\\": 9007199254740993"}',
  "[0.1234567890123456789, 12345678901234567.5, 1234567890123456e3, 1e300]",
])("accepts %s", (text) => {
  JSON.parse(text);
  expect(inexactInteger(text)).toBeUndefined();
});

test("finds an unsafe integer anywhere in any JSON, and none elsewhere", () => {
  const isSafe = (text: string) => !/(?<![\w.])-?\d{16,}(?![\d.e])/.test(text);
  const json = fc.json({ noUnicodeString: false }).filter(isSafe);
  fc.assert(
    fc.property(json, json, fc.string(), (before, after, key) => {
      const name = JSON.stringify(`k${key}`);
      const text = (value: string) => `[${before},{${name}:${value}},${after},"1234567890123456"]`;
      expect(inexactInteger(text(' "9007199254740993" '))).toBeUndefined();
      expect(inexactInteger(text("9007199254740993"))).toMatch(/^\[1\]/);
    }),
  );
});

test("names a number of a value that may have been rounded", () => {
  expect(inexactNumber({ a: [1, { b: 2 ** 53 }] })).toBe("a[1].b");
  expect(inexactNumber([-(2 ** 60)])).toBe("[0]");
  expect(
    inexactNumber({ a: 2 ** 53 - 1, b: 1e300, c: 0.1, d: 5n, e: null, f: "9007199254740993" }),
  ).toBeUndefined();
  const cyclic: Record<string, unknown> = {};
  cyclic.self = cyclic;
  expect(inexactNumber(cyclic)).toBeUndefined();
});
