import { describe, expect, test } from "vitest";
import { readSpans } from "../data/spans.ts";
import { spanLanes } from "./span_lanes.ts";

const at = (ms: number) => new Date(1_700_000_000_000 + ms).toISOString();
const span = (span_id: string, start: number, parent_id?: string) => ({
  span_id,
  name: span_id,
  started_at: at(start),
  duration_ms: 10,
  ...(parent_id !== undefined && { parent_id }),
});
type WireSpan = ReturnType<typeof span> & { attributes?: Record<string, string | number>; status?: string };
const lanes = (spans: readonly WireSpan[]) => spanLanes(readSpans({ spans: [...spans] }));
const shape = (spans: readonly WireSpan[]) => lanes(spans).map(({ id, depth }) => [id, depth]);

describe("the lanes of a trace", () => {
  test("shows children below their parents, by start time", () => {
    expect(shape([span("c", 30, "a"), span("a", 0), span("b", 10, "a"), span("d", 15, "b")])).toEqual([
      ["a", 0],
      ["b", 1],
      ["d", 2],
      ["c", 1],
    ]);
  });

  test("shows a span with a missing parent as a root", () => {
    expect(shape([span("b", 0, "gone")])).toEqual([["b", 0]]);
  });

  test("labels an agent's attempts, and shows failures", () => {
    const attributes = { "khala.agent": "reviewer", "khala.attempt": 2 };
    const [lane] = lanes([{ ...span("x", 0), name: "process tasks", attributes, status: "error" }]);
    expect(lane).toMatchObject({ label: "process reviewer, attempt 2", bars: [{ state: "failed" }] });
  });
});
