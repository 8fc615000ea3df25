import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { diffLines, jsonLines } from "./diff_lines.ts";

describe("the diff of two documents", () => {
  test("contains only changed lines", () => {
    const lines = diffLines(jsonLines({ a: 1, b: [1, 2], c: "x" }), jsonLines({ c: "x", b: [1, 3], a: 1 }));
    expect(lines?.filter((line) => line.kind !== "same")).toEqual([
      { kind: "removed", text: "    2" },
      { kind: "added", text: "    3" },
    ]);
  });

  test("does not mark the line before an added last field", () => {
    const lines = diffLines(jsonLines({ a: 1 }), jsonLines({ a: 1, b: 2 }));
    expect(lines?.filter((line) => line.kind !== "same")).toEqual([{ kind: "added", text: '  "b": 2' }]);
  });

  test("marks a new document as added", () => {
    expect(diffLines(jsonLines(undefined), jsonLines({ a: 1 }))?.every((line) => line.kind === "added")).toBe(
      true,
    );
  });

  test("turns any list of lines into any other", () => {
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
