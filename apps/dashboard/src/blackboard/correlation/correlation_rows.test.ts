import { expect, test } from "vitest";
import { correlationLanes } from "./correlation_lanes.ts";
import { correlationRows } from "./correlation_rows.ts";

const T0 = 1_700_000_000_000;
const at = (ms: number) => new Date(T0 + ms).toISOString();

const attempt = (n: number, start: number, duration_ms: number, failed = false) => ({
  start: T0 + start,
  duration_ms,
  status: failed ? "error" : "ok",
  message: failed ? "No answer." : "",
  attributes: {
    "messaging.operation.name": "process",
    "khala.agent": "reviewer",
    "khala.attempt": n,
    "artifact.id": "a1",
    "artifact.type": "Draft",
  },
});
const draft = { id: "a1", type: "Draft", produced_by: "agent:writer", created_at: at(0) };
const letter = (artifacts: readonly string[] = []) => ({
  id: "d1",
  agent: "illustrator",
  failed_at: at(90),
  attempts: 1,
  failure: { class: "Error", message: "No picture.", stack: "", kind: "fatal" },
  task: { artifacts: artifacts.map((id) => ({ id })) } as never,
});

test("shows the attempts of an agent on an artifact as one row, with the wait before each", () => {
  const [, work] = correlationRows([draft], [attempt(2, 600, 50), attempt(1, 20, 80, true)], []);
  expect(work).toMatchObject({ kind: "work", name: "reviewer", attempts: 2 });
  expect(work!.phases.map(({ kind, failed, end, start }) => [kind, end - start, failed])).toEqual([
    ["queued", 20, false],
    ["run", 80, true],
    ["retry", 500, false],
    ["run", 50, false],
  ]);
});

test("orders rows by time, and an artifact before the work on it", () => {
  const rows = correlationRows([draft], [attempt(1, 0, 10)], []);
  expect(rows.map(({ kind }) => kind)).toEqual(["artifact", "work"]);
});

test("leaves out spans that are not an agent's tasks", () => {
  const route = { ...attempt(1, 0, 5), attributes: { "messaging.operation.name": "route" } };
  expect(correlationRows([], [route], [])).toEqual([]);
});

test("shows a dead letter last, with its message", () => {
  const rows = correlationRows([draft], [], [letter()]);
  expect(rows.at(-1)).toMatchObject({ kind: "dead", name: "illustrator", message: "No picture." });
});

test("shows the lanes of tasks and dead letters below their artifact", () => {
  const lanes = correlationLanes(correlationRows([draft], [attempt(1, 40, 10)], [letter(["a1"])]));
  expect(lanes.map(({ label, depth = 0 }) => [label, depth])).toEqual([
    ["Draft", 0],
    ["reviewer", 1],
    ["illustrator", 1],
  ]);
  expect(lanes[1]!.bars.map(({ state }) => state)).toEqual(["waiting", "working"]);
});

test("shows work on an artifact that is not among the recent ones", () => {
  expect(correlationLanes(correlationRows([], [attempt(1, 40, 10)], []))).toMatchObject([
    { label: "reviewer" },
  ]);
});
