import { expect, test } from "vitest";
import { TaskStates } from "./processed.ts";

test("evicts the oldest states first, and an update makes a state the newest", () => {
  const states = new TaskStates(2);
  states.set("a", { kind: "settled" });
  states.set("b", { kind: "settled" });
  states.set("a", { kind: "waits", attempt: 2, dueAt: 5 });
  states.set("c", { kind: "settled" });
  expect(states.get("a")).toEqual({ kind: "waits", attempt: 2, dueAt: 5 });
  expect(states.get("b")).toBeUndefined();
  expect(states.get("c")).toEqual({ kind: "settled" });
});
