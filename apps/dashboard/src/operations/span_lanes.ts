import type { Lane } from "../parts/timeline.tsx";
import type { Span } from "./ops_read.ts";

/** The steps of a trace as lanes: children below their parents, by their start. A parent that is not there is no parent. */
export function spanLanes(spans: readonly Span[]): readonly Lane[] {
  const ids = new Set(spans.map(({ id }) => id));
  const children = new Map<string | undefined, Span[]>();
  for (const span of spans) {
    const parent =
      span.parent !== undefined && ids.has(span.parent) && span.parent !== span.id ? span.parent : undefined;
    const list = children.get(parent);
    if (list) list.push(span);
    else children.set(parent, [span]);
  }
  const lanes: Lane[] = [];
  const seen = new Set<string>();
  const add = (parent: string | undefined, depth: number) => {
    for (const span of (children.get(parent) ?? []).toSorted((a, b) => a.start - b.start)) {
      if (seen.has(span.id)) continue;
      seen.add(span.id);
      lanes.push({
        id: span.id,
        label: labelOf(span),
        depth,
        bars: [
          {
            id: span.id,
            label: labelOf(span),
            start: span.start,
            end: span.start + span.ms,
            state: span.status === "error" ? "failed" : "working",
          },
        ],
      });
      add(span.id, depth + 1);
    }
  };
  add(undefined, 0);
  return lanes;
}

/** The step in words that tell attempts apart. */
function labelOf({ name, attributes }: Span): string {
  const { "khala.agent": agent, "khala.attempt": attempt } = attributes;
  if (typeof agent !== "string") return name;
  const [verb = name] = name.split(" ");
  return Number(attempt) > 1 ? `${verb} ${agent}, attempt ${attempt}` : `${verb} ${agent}`;
}
