import { expect, test } from "vitest";
import type { Schedule } from "../model/agent.ts";
import { checkSchedules, firingId } from "./cron.ts";

const schedule = (more: Partial<Schedule> = {}): Schedule => ({
  name: "nightly",
  cron: "0 7 * * *",
  org: "acme",
  artifact: { type: "Night" },
  ...more,
});

test.each([
  ["a pattern that cannot be read", [schedule({ cron: "0 99 * * *" })], "nightly"],
  ["too few fields", [schedule({ cron: "* *" })], "five or six fields"],
  ["a date", [schedule({ cron: "2030-01-01T00:00:00" })], "five or six fields"],
  ["a day that never comes", [schedule({ cron: "0 0 31 2 *" })], "nightly"],
  ["a time zone that is not there", [schedule({ timezone: "Moon/Base" })], "Moon/Base"],
  ["a name twice", [schedule(), schedule()], "Two schedules"],
  ["an empty name", [schedule({ name: "" })], "not a valid name"],
])("%s is a TypeError at definition", (_what, schedules, words) => {
  expect(() => checkSchedules(schedules)).toThrow(TypeError);
  expect(() => checkSchedules(schedules)).toThrow(words);
});

test("times are in UTC unless a time zone is named", () => {
  const noon = Date.UTC(2026, 0, 10, 12);
  const [utc, berlin] = checkSchedules([schedule(), schedule({ name: "berlin", timezone: "Europe/Berlin" })]);
  expect(utc!.next(noon)).toBe(Date.UTC(2026, 0, 11, 7));
  expect(berlin!.next(noon)).toBe(Date.UTC(2026, 0, 11, 6));
});

test("the last time includes the present moment", () => {
  const [daily] = checkSchedules([schedule()]);
  const seven = Date.UTC(2026, 0, 10, 7);
  expect(daily!.last(seven)).toBe(seven);
  expect(daily!.last(seven - 1)).toBe(seven - 86_400_000);
  expect(daily!.next(seven)).toBe(seven + 86_400_000);
});

test("a firing has the same id on every server, and ids sort by time", () => {
  const at = Date.UTC(2026, 0, 10, 7);
  expect(firingId("nightly", at)).toBe(firingId("nightly", at));
  expect(firingId("nightly", at)).toMatch(
    /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  expect(Number.parseInt(firingId("nightly", at).replaceAll("-", "").slice(0, 12), 16)).toBe(at);
  expect(firingId("weekly", at)).not.toBe(firingId("nightly", at));
});
