import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { runInNewContext } from "node:vm";
import canonicalize from "canonicalize";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalJson, MAX_NESTING } from "./canonical.ts";
import { KhalaError } from "./errors.ts";

interface Generate {
  kind: "repeat";
  prefix: string;
  unit: string;
  separator: string;
  count: number;
  suffix: string;
}

interface Vector {
  name: string;
  input_json?: string;
  generate?: Generate;
  canonical?: string;
  bytes?: number;
  sha256?: string;
  ieee754?: string;
  error?: true;
}

const file = new URL("../../../proto/vectors/canonical_json.json", import.meta.url);
const vectors: { max_nesting: number; cases: Vector[] } = JSON.parse(readFileSync(file, "utf8"));

function generated({ prefix, unit, separator, count, suffix }: Generate): string {
  const copies = Array.from({ length: count }, (_, index) => unit.replaceAll("<i>", `${index}`));
  return prefix + copies.join(separator) + suffix;
}

function refusal(value: unknown): KhalaError {
  try {
    canonicalJson(value);
  } catch (error) {
    if (error instanceof KhalaError) return error;
    throw error;
  }
  throw new Error("was not refused");
}

describe("the shared vectors", () => {
  test("state the nesting limit of this code", () => {
    expect(vectors.max_nesting).toBe(MAX_NESTING);
  });

  test.each(vectors.cases)("$name", (vector) => {
    const text = vector.generate ? generated(vector.generate) : vector.input_json;
    const input: unknown = JSON.parse(text ?? "");
    if (vector.error) {
      expect(refusal(input).code).toBe("invalid_request");
      return;
    }
    const canonical = canonicalJson(input);
    expect(createHash("sha256").update(canonical, "utf8").digest("hex")).toBe(vector.sha256);
    if (vector.generate) expect(Buffer.byteLength(canonical)).toBe(vector.bytes);
    else expect(canonical).toBe(vector.canonical);
    if (vector.ieee754 !== undefined) {
      expect(Buffer.from(vector.ieee754, "hex").readDoubleBE()).toBe(input);
    }
  });
});

describe("against the npm package canonicalize", () => {
  const text = fc.string({ unit: "binary" });
  const number = fc.oneof(
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.integer(),
    fc.maxSafeInteger(),
  );
  const json = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: "medium", withCrossShrink: true },
      fc.constant(null),
      fc.boolean(),
      number,
      text,
      fc.array(tie("value")),
      fc.dictionary(text, tie("value"), { maxKeys: 6 }),
    ),
  })).value;

  const same = (value: unknown) => {
    expect(canonicalJson(value)).toBe(canonicalize(value));
  };

  test("any JSON value gives the same text", () => {
    fc.assert(fc.property(json, same));
  });

  test("objects with few and with many keys give the same text", () => {
    const objects = fc.dictionary(text, fc.integer(), { maxKeys: 50, size: "max" });
    fc.assert(fc.property(objects, same));
  });

  test("any double gives the same text", () => {
    const bits = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
    const doubles = bits
      .map((value) => new Float64Array(BigUint64Array.of(value).buffer)[0])
      .filter((value) => Number.isFinite(value));
    fc.assert(fc.property(doubles, same), { numRuns: 500 });
  });

  test("any string gives the same text, or is refused by both", () => {
    const units = fc.array(fc.integer({ min: 0, max: 0xffff })).map((codes) => String.fromCharCode(...codes));
    fc.assert(
      fc.property(units, (value) => {
        if (value.isWellFormed()) same(value);
        else expect(refusal(value).code).toBe("invalid_request");
      }),
      { numRuns: 500 },
    );
  });

  test("the text is JSON for the same value, and its own canonical form", () => {
    fc.assert(
      fc.property(json, (value) => {
        const canonical = canonicalJson(value);
        const parsed: unknown = JSON.parse(canonical);
        expect(parsed).toEqual(JSON.parse(JSON.stringify(value)));
        expect(canonicalJson(parsed)).toBe(canonical);
      }),
    );
  });

  test("ignores the order in which keys were added", () => {
    const entries = fc.uniqueArray(fc.tuple(text, number), { selector: ([key]) => key, maxLength: 40 });
    const shuffled = entries.chain((list) =>
      fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length })),
    );
    fc.assert(
      fc.property(shuffled, ([one, other]) => {
        expect(canonicalJson(Object.fromEntries(other))).toBe(canonicalJson(Object.fromEntries(one)));
      }),
    );
  });
});

describe("refuses values without canonical JSON, with their path", () => {
  const cyclic: Record<string, unknown> = {};
  cyclic.self = [cyclic];

  test.each([
    ["NaN", { a: { b: [0, 1, 2, Number.NaN] } }, "a.b[3]"],
    ["Infinity", [Number.POSITIVE_INFINITY], "[0]"],
    ["-Infinity", { a: Number.NEGATIVE_INFINITY }, "a"],
    ["a lone surrogate", { a: [{ b: "\ud800" }] }, "a[0].b"],
    ["a lone surrogate in a key", { a: { "\udc00": 1 } }, 'a["\\udc00"]'],
    ["undefined in an array", { list: [1, undefined] }, "list[1]"],
    ["a hole in an array", { list: new Array(1) }, "list[0]"],
    ["a function", { a: () => 1 }, "a"],
    ["a symbol", { a: Symbol("x") }, "a"],
    ["a bigint", { a: [1n] }, "a[0]"],
    ["a Date", { at: new Date(0) }, "at"],
    ["a Map", { m: new Map() }, "m"],
    ["bytes", { bytes: new Uint8Array(1) }, "bytes"],
    ["a boxed string", { a: Object("x") }, "a"],
    ["an object of a class", { a: new (class Thing {})() }, "a"],
    ["a bad value after good ones that lie deeper", { a: [{ b: [1] }], c: 1n }, "c"],
    ["a key that is not an identifier", { "x y": { "": { "1": 1n } } }, '["x y"][""]["1"]'],
  ])("%s", (_, value, field) => {
    const error = refusal(value);
    expect(error.code).toBe("invalid_request");
    expect(error.details.field).toBe(field);
    expect(error.message).toContain(field);
  });

  test.each([[undefined], [Number.NaN], [1n], ["\ud800"], [new Date(0)]])("%o as the document", (value) => {
    const error = refusal(value);
    expect(error.code).toBe("invalid_request");
    expect(error.details).toEqual({});
  });

  test("a cycle ends at the nesting limit, with a path of bounded length", () => {
    const error = refusal(cyclic);
    expect(error.message).toContain(`deeper than ${MAX_NESTING}`);
    expect(error.details.field).toMatch(/^self\[0\]\.self\[0\]/);
    expect(error.details.field?.length).toBeLessThanOrEqual(201);
  });

  test("cuts a path between Unicode characters", () => {
    fc.assert(
      fc.property(fc.integer({ min: 190, max: 200 }), (length) => {
        const field = refusal({ [`${"x".repeat(length)}${"😀".repeat(20)}`]: 1n }).details.field;
        expect(field?.isWellFormed()).toBe(true);
      }),
    );
  });
});

describe("accepts", () => {
  test("undefined members, which are left out, also the first and the last", () => {
    expect(canonicalJson({ a: undefined, b: 1, c: undefined, d: 2, e: undefined })).toBe('{"b":1,"d":2}');
    expect(canonicalJson({ a: undefined })).toBe("{}");
  });

  test("objects without a prototype or from another realm", () => {
    expect(canonicalJson(Object.assign(Object.create(null), { b: 1, a: 2 }))).toBe('{"a":2,"b":1}');
    expect(canonicalJson(runInNewContext("({ b: [1], a: {} })"))).toBe('{"a":{},"b":[1]}');
  });

  test("the same object twice, which is not a cycle", () => {
    const shared = { x: 1 };
    expect(canonicalJson([shared, shared])).toBe('[{"x":1},{"x":1}]');
  });

  test("a value without changing it", () => {
    const value = Object.freeze({ b: Object.freeze([3, 1]), a: 1 });
    canonicalJson(value);
    expect(Object.keys(value)).toEqual(["b", "a"]);
  });
});
