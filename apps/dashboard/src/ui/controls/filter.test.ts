import { describe, expect, test } from "vitest";
import { parseFilter, passes } from "./filter.ts";

describe("a filter", () => {
  test("is parsed into words and keys with values", () => {
    expect(parseFilter('slow code:1013 Kind:phoenix title:"plan a trip"')).toEqual({
      words: ["slow"],
      keys: { code: ["1013"], kind: ["phoenix"], title: ["plan a trip"] },
    });
  });

  test("matches an item with every word and one value of every key", () => {
    const close = { code: 1013, reason: "Slow consumer", kind: "phoenix" };
    expect(passes(parseFilter("slow code:1013"), close)).toBe(true);
    expect(passes(parseFilter("code:1001 code:1013"), close)).toBe(true);
    expect(passes(parseFilter("code:1001"), close)).toBe(false);
    expect(passes(parseFilter("fast"), close)).toBe(false);
    expect(passes(parseFilter("colour:red"), close)).toBe(false);
    expect(passes(parseFilter(""), close)).toBe(true);
  });

  test("matches by the part of a value typed so far", () => {
    expect(passes(parseFilter('reason:"slow con'), { reason: "Slow consumer" })).toBe(true);
  });
});
