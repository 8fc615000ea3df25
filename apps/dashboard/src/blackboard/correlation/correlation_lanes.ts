import type { Lane } from "../../ui/charts/timeline.tsx";
import { plural } from "../../ui/format/numbers.ts";
import type { CorrelationRow, Phase } from "./correlation_rows.ts";

/** The rows as lanes: below each artifact the tasks for it, with waits and attempts as bars. */
export function correlationLanes(rows: readonly CorrelationRow[]): readonly Lane[] {
  const artifacts = rows.filter(({ kind }) => kind === "artifact");
  const work = rows.filter(({ kind }) => kind !== "artifact");
  const known = new Set(artifacts.map(({ artifactId }) => artifactId));
  return [
    ...artifacts.flatMap((artifact) => [
      artifactLane(artifact),
      ...work.filter(({ artifactId }) => artifactId === artifact.artifactId).map((row) => workLane(row, 1)),
    ]),
    // Work on artifacts that are not among the recent ones.
    ...work.filter(({ artifactId }) => !known.has(artifactId)).map((row) => workLane(row, 0)),
  ];
}

function artifactLane({ id, name, producer, start }: CorrelationRow): Lane {
  const text = `published by ${producer.replace(/^\w+:/, "")}`;
  return { id, label: name, bars: [{ id, label: `${name} ${text}`, start, end: start, state: "ok", text }] };
}

function workLane({ id, kind, name, start, message, attempts, phases }: CorrelationRow, depth: number): Lane {
  if (kind === "dead") {
    const text = "dead letter";
    const label = `${name}: ${text}. ${message}`;
    return { id, label: name, depth, bars: [{ id, label, start, end: start, state: "failed", text }] };
  }
  const bars = phases.map((phase, index) => ({
    id: `${id}#${index}`,
    label: `${name}, ${describe(phase)}`,
    start: phase.start,
    end: phase.end,
    state:
      phase.kind !== "run" ? ("waiting" as const) : phase.failed ? ("failed" as const) : ("working" as const),
  }));
  return { id, label: attempts > 1 ? `${name} (${plural(attempts, "attempt")})` : name, depth, bars };
}

function describe({ kind, attempt, failed, message }: Phase): string {
  if (kind === "queued") return "queued";
  if (kind === "retry") return "waiting for retry";
  const result = `attempt ${attempt} ${failed ? "failed" : "succeeded"}`;
  return message === "" ? result : `${result}: ${message}`;
}
