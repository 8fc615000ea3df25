import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { diffLines, jsonLines } from "./json_lines.ts";

describe("the difference of two documents", () => {
  test("names what changed and nothing else", () => {
    const lines = diffLines(jsonLines({ a: 1, b: [1, 2], c: "x" }), jsonLines({ c: "x", b: [1, 3], a: 1 }));
    expect(lines?.filter((line) => line.kind !== "same")).toEqual([
      { kind: "removed", text: "    2" },
      { kind: "added", text: "    3" },
    ]);
  });

  test("a field that is added last does not change the one before it", () => {
    const lines = diffLines(jsonLines({ a: 1 }), jsonLines({ a: 1, b: 2 }));
    expect(lines?.filter((line) => line.kind !== "same")).toEqual([{ kind: "added", text: '  "b": 2' }]);
  });

  test("a document that was not there before is all added", () => {
    expect(diffLines(jsonLines(undefined), jsonLines({ a: 1 }))?.every((line) => line.kind === "added")).toBe(
      true,
    );
  });

  test("leads from the one to the other, whatever they are", () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom("a", "b", "c")),
        fc.array(fc.constantFrom("a", "b", "c")),
        (old, fresh) => {
          const lines = diffLines(old, fresh) ?? [];
          expect(lines.filter((line) => line.kind !== "added").map((line) => line.text)).toEqual(old);
          expect(lines.filter((line) => line.kind !== "removed").map((line) => line.text)).toEqual(fresh);
        },
      ),
    );
  });
});
