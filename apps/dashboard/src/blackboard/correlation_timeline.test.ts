import { expect, test } from "vitest";
import { correlationRows, type TimelineSpan } from "./correlation_timeline.ts";

const at = (ms: number) => new Date(1_700_000_000_000 + ms).toISOString();

const attempt = (n: number, start: number, duration_ms: number, failed = false): TimelineSpan => ({
  span_id: `s${n}`,
  started_at: at(start),
  duration_ms,
  status: failed ? "error" : "ok",
  ...(failed && { message: "No answer." }),
  attributes: {
    "messaging.operation.name": "process",
    "khala.agent": "reviewer",
    "khala.attempt": n,
    "artifact.id": "a1",
    "artifact.type": "Draft",
  },
});

const draft = { id: "a1", type: "Draft", produced_by: "agent:writer", created_at: at(0) };

test("the attempts of an agent on an artifact are one row, with what was waited before each", () => {
  const [, work] = correlationRows([draft], [attempt(2, 600, 50), attempt(1, 20, 80, true)], []);
  expect(work).toMatchObject({ kind: "work", name: "reviewer", of: "Draft", attempts: 2, failed: false });
  expect(work!.stretches.map(({ kind, failed, end, start }) => [kind, end - start, failed])).toEqual([
    ["waiting", 20, false],
    ["run", 80, true],
    ["retry", 500, false],
    ["run", 50, false],
  ]);
});

test("rows are in order of time, and an artifact comes before the work on it", () => {
  const rows = correlationRows([draft], [attempt(1, 0, 10)], []);
  expect(rows.map(({ kind }) => kind)).toEqual(["artifact", "work"]);
});

test("steps that are not the work of an agent are left out", () => {
  const route = { ...attempt(1, 0, 5), attributes: { "messaging.operation.name": "route" } };
  expect(correlationRows([], [route], [])).toEqual([]);
});

test("a dead letter ends the story with its message", () => {
  const letter = { id: "d1", agent: "illustrator", failed_at: at(90), attempts: 1, message: "No picture." };
  expect(correlationRows([draft], [], [letter]).at(-1)).toMatchObject({
    kind: "dead",
    name: "illustrator",
    failed: true,
    message: "No picture.",
  });
});
