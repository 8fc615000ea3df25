import { expect, test } from "vitest";
import { readable } from "./log.ts";

const line = (fields: object) => readable(JSON.stringify({ level: 30, time: 0, ...fields }), process.stderr);

test("a log line has the time, level and message, and the rest as key=value", () => {
  const text = line({ level: 40, msg: "a step failed", service: "hub", failures: 2 });
  expect(text).toMatch(/^\d\d:\d\d:\d\d warn {2}a step failed service=hub failures=2$/);
});

test("logs an error with its stack when it has one", () => {
  expect(line({ msg: "failed", err: { message: "no", stack: "Error: no\n    at here" } })).toContain(
    "at here",
  );
  expect(line({ msg: "failed", err: "no such table" })).toMatch(/failed no such table$/);
});
