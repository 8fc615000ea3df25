import type { Bar, Lane } from "../parts/timeline.tsx";
import { boardWords } from "../strings/blackboard.ts";
import type { CorrelationRow, Stretch } from "./correlation_timeline.ts";

const words = boardWords.timeline;

/** The rows as lanes: under each artifact the work on it, with its waits and attempts as bars. */
export function correlationLanes(rows: readonly CorrelationRow[]): readonly Lane[] {
  const artifacts = rows.filter(({ kind }) => kind === "artifact");
  const known = new Set(artifacts.map(({ refers }) => refers));
  const under = (id: string) => rows.filter(({ kind, about }) => kind !== "artifact" && about === id);
  return [
    ...artifacts.flatMap((artifact) => [
      artifactLane(artifact),
      ...under(artifact.refers).map((row) => workLane(row, 1)),
    ]),
    // Work on artifacts that have left the recent window.
    ...rows
      .filter(({ kind, about }) => kind !== "artifact" && !known.has(about))
      .map((row) => workLane(row, 0)),
  ];
}

function artifactLane({ id, name, of, start }: CorrelationRow): Lane {
  const by = of.replace(/^\w+:/, "");
  const bar: Bar = {
    id,
    label: `${name} ${words.published(by)}`,
    start,
    end: start,
    state: "ok",
    text: words.published(by),
  };
  return { id, label: name, bars: [bar] };
}

function workLane(row: CorrelationRow, depth: number): Lane {
  if (row.kind === "dead") {
    const label = `${row.name}: ${words.dead}. ${row.message ?? ""}`;
    const bar: Bar = {
      id: row.id,
      label,
      start: row.start,
      end: row.start,
      state: "failed",
      text: words.dead,
    };
    return { id: row.id, label: row.name, depth, bars: [bar] };
  }
  const bars = row.stretches.map(
    (stretch, index): Bar => ({
      id: `${row.id}#${index}`,
      label: `${row.name}, ${describe(stretch)}`,
      start: stretch.start,
      end: stretch.end,
      state: stretch.kind !== "run" ? "waiting" : stretch.failed ? "failed" : "working",
    }),
  );
  const label = row.attempts > 1 ? `${row.name} (${words.attempts(row.attempts)})` : row.name;
  return { id: row.id, label, depth, bars };
}

function describe({ kind, attempt, failed, message }: Stretch): string {
  if (kind === "waiting") return words.waited;
  if (kind === "retry") return words.retryWait;
  const what = `${words.attempt(attempt)} ${failed ? words.failed : words.ran}`;
  return message === undefined ? what : `${what}: ${message}`;
}
