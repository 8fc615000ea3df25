import { expect, test } from "vitest";
import { resolveSettings } from "./settings.ts";

const DAY_MS = 86_400_000;
const kafka = { bootstrap: "127.0.0.1:9092", clientId: "test" };
const marks = (retention?: { artifacts?: number; tasks?: number; processed?: number }) =>
  resolveSettings({ kafka, ...(retention && { retention }) }).retention.processed;

test("keeps processed entries at least as long as artifacts and tasks", () => {
  expect(marks()).toBe(30 * DAY_MS);
  expect(marks({ artifacts: DAY_MS })).toBe(30 * DAY_MS);
  expect(marks({ artifacts: 90 * DAY_MS })).toBe(90 * DAY_MS);
  expect(marks({ artifacts: 90 * DAY_MS, tasks: 120 * DAY_MS })).toBe(120 * DAY_MS);
  expect(marks({ artifacts: -1 })).toBe(-1);
  expect(marks({ artifacts: 90 * DAY_MS, processed: DAY_MS })).toBe(DAY_MS);
});
