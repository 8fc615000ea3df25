import type { Span } from "../data/spans.ts";
import type { Lane } from "../ui/charts/timeline.tsx";

/** The spans of a trace as lanes: children below their parents, by their start. A span without its parent is a root. */
export function spanLanes(spans: readonly Span[]): readonly Lane[] {
  const ids = new Set(spans.map(({ span_id }) => span_id));
  const children = Map.groupBy(spans, ({ span_id, parent_id }) =>
    parent_id !== undefined && ids.has(parent_id) && parent_id !== span_id ? parent_id : undefined,
  );
  const seen = new Set<string>();
  const lanesOf = (parent: string | undefined, depth: number): readonly Lane[] =>
    (children.get(parent) ?? [])
      .toSorted((a, b) => a.start - b.start)
      .flatMap((span) => {
        if (seen.has(span.span_id)) return [];
        seen.add(span.span_id);
        return [laneOf(span, depth), ...lanesOf(span.span_id, depth + 1)];
      });
  return lanesOf(undefined, 0);
}

function laneOf(span: Span, depth: number): Lane {
  const { span_id: id, start, duration_ms, status } = span;
  const label = labelOf(span);
  const state = status === "error" ? "failed" : "working";
  return { id, label, depth, bars: [{ id, label, start, end: start + duration_ms, state }] };
}

/** A label that tells attempts apart. */
function labelOf({ name, attributes }: Span): string {
  const { "khala.agent": agent, "khala.attempt": attempt } = attributes;
  if (typeof agent !== "string") return name;
  const [verb = name] = name.split(" ");
  return Number(attempt) > 1 ? `${verb} ${agent}, attempt ${attempt}` : `${verb} ${agent}`;
}
