import { expect, test } from "vitest";
import { TaskStates } from "./processed.ts";

test("the oldest marks are forgotten first, and a new word on a task makes its mark young", () => {
  const marks = new TaskStates(2);
  marks.set("a", { kind: "settled" });
  marks.set("b", { kind: "settled" });
  marks.set("a", { kind: "waits", attempt: 2, dueAt: 5 });
  marks.set("c", { kind: "settled" });
  expect(marks.get("a")).toEqual({ kind: "waits", attempt: 2, dueAt: 5 });
  expect(marks.get("b")).toBeUndefined();
  expect(marks.get("c")).toEqual({ kind: "settled" });
  expect(marks.size).toBe(2);
});
