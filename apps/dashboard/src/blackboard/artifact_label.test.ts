import { expect, test } from "vitest";
import { labelOf } from "./artifact_label.ts";

test("names an artifact by the field of its payload that says most", () => {
  expect(labelOf({ payload: { text: "Long", topic: "Otters" } })).toBe("Otters");
  expect(labelOf({ payload: { topic: " ", name: "Bern" } })).toBe("Bern");
  expect(labelOf({ payload: "Just words" })).toBe("Just words");
  expect(labelOf({ payload: "x".repeat(500) })).toHaveLength(120);
});

test("has no name for a payload without one, or that may not be seen", () => {
  for (const payload of [undefined, null, 7, [], {}, { title: 7 }, ""])
    expect(labelOf({ payload })).toBeUndefined();
});
