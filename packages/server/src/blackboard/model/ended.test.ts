import { expect, test } from "vitest";
import { noteEnded, takeEnded } from "./ended.ts";
import type { Task } from "./task.ts";

test("an attempt is taken once, and the next one of its task is another", () => {
  const times = { startedAt: 0, endedAt: 1, trace: undefined };
  const task = { id: "t", agent: "a", attempt: 1 } as Task;
  expect(takeEnded(task)).toBeUndefined();
  noteEnded(task, times);
  expect(takeEnded({ ...task, attempt: 2 })).toBeUndefined();
  expect(JSON.stringify(task)).toBe('{"id":"t","agent":"a","attempt":1}');
  expect(takeEnded(task)).toBe(times);
  expect(takeEnded(task)).toBeUndefined();
});
