import { expect, test } from "vitest";
import { correlationLanes } from "./correlation_lanes.ts";
import { correlationRows } from "./correlation_timeline.ts";

const at = (ms: number) => new Date(1_700_000_000_000 + ms).toISOString();
const draft = { id: "a1", type: "Draft", produced_by: "agent:writer", created_at: at(0) };
const work = {
  span_id: "s1",
  started_at: at(40),
  duration_ms: 10,
  status: "ok",
  attributes: {
    "messaging.operation.name": "process",
    "khala.agent": "reviewer",
    "khala.attempt": 1,
    "artifact.id": "a1",
    "artifact.type": "Draft",
  },
};
const letter = {
  id: "d1",
  agent: "illustrator",
  failed_at: at(60),
  attempts: 1,
  message: "No picture.",
  artifact_id: "a1",
};

test("the work on an artifact, and what gave up on it, are under the artifact", () => {
  const lanes = correlationLanes(correlationRows([draft], [work], [letter]));
  expect(lanes.map(({ label, depth = 0 }) => [label, depth])).toEqual([
    ["Draft", 0],
    ["reviewer", 1],
    ["illustrator", 1],
  ]);
  expect(lanes[1]!.bars.map(({ state }) => state)).toEqual(["waiting", "working"]);
});

test("work on an artifact that has left the window is still shown", () => {
  expect(correlationLanes(correlationRows([], [work], []))).toMatchObject([{ label: "reviewer" }]);
});
