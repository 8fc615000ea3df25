import { describe, expect, test } from "vitest";
import type { Span } from "./ops_read.ts";
import { spanLanes } from "./span_lanes.ts";

const span = (id: string, start: number, parent?: string, more: Partial<Span> = {}): Span => ({
  id,
  parent,
  name: id,
  start,
  ms: 10,
  attributes: {},
  status: "ok",
  message: "",
  ...more,
});
const shape = (spans: readonly Span[]) => spanLanes(spans).map(({ id, depth }) => [id, depth]);

describe("the lanes of a trace", () => {
  test("children are below their parents, by their start", () => {
    expect(shape([span("c", 30, "a"), span("a", 0), span("b", 10, "a"), span("d", 15, "b")])).toEqual([
      ["a", 0],
      ["b", 1],
      ["d", 2],
      ["c", 1],
    ]);
  });

  test("a step whose parent was forgotten is shown, not dropped", () => {
    expect(shape([span("b", 0, "gone")])).toEqual([["b", 0]]);
  });

  test("attempts of an agent are told apart, and failures seen", () => {
    const attributes = { "khala.agent": "reviewer", "khala.attempt": 2 };
    const [lane] = spanLanes([
      span("x", 0, undefined, { name: "process tasks", attributes, status: "error" }),
    ]);
    expect(lane).toMatchObject({ label: "process reviewer, attempt 2", bars: [{ state: "failed" }] });
  });
});
