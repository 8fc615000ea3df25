import { expect, test } from "vitest";
import { correlationLabel, labelOf } from "./artifact_label.ts";

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

test("names a correlation by its first artifact with a name, else by its id", () => {
  const id = "01a1f15a-e9a6-760f-8837-25d91e8baeaf";
  expect(correlationLabel(id, [{ payload: {} }, { payload: { title: "One" } }, { payload: "Two" }])).toBe(
    "One",
  );
  expect(correlationLabel(id, [{ payload: {} }])).toBe("01a1f15a-e…91e8baeaf");
});
