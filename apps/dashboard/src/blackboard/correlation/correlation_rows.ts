import type { Span } from "../../data/spans.ts";
import type { Artifact, DeadLetter } from "../board_types.ts";

/** A part of a row: an attempt, or a wait before one. */
export interface Phase {
  readonly kind: "run" | "queued" | "retry";
  readonly start: number;
  readonly end: number;
  readonly failed: boolean;
  /** The number of the attempt; 0 for a wait. */
  readonly attempt: number;
  readonly message: string;
}

/** A row of the timeline: an artifact, the tasks of one agent for one artifact, or a dead letter. */
export interface CorrelationRow {
  readonly id: string;
  readonly kind: "artifact" | "work" | "dead";
  /** The type of the artifact, or the agent. */
  readonly name: string;
  /** Who published the artifact. */
  readonly producer: string;
  readonly start: number;
  readonly phases: readonly Phase[];
  readonly attempts: number;
  readonly message: string;
  /** The artifact that the row belongs to; empty when it is not known. */
  readonly artifactId: string;
  /** The artifact or dead letter to show in the panel. */
  readonly refers: string;
}

/** Shorter waits are overhead, and not shown. */
const NOTICEABLE_MS = 5;
const ORDER = ["artifact", "work", "dead"];
const EMPTY_ROW = { producer: "", phases: [], attempts: 0, message: "" };

/** Everything that one request caused, in order of time. */
export function correlationRows(
  artifacts: readonly Pick<Artifact, "id" | "type" | "produced_by" | "created_at">[],
  spans: readonly Pick<Span, "start" | "duration_ms" | "attributes" | "status" | "message">[],
  deadLetters: readonly Pick<DeadLetter, "id" | "agent" | "failed_at" | "attempts" | "failure" | "task">[],
): readonly CorrelationRow[] {
  const published = new Map(artifacts.map(({ id, created_at }) => [id, Date.parse(created_at)]));
  const tasks = Map.groupBy(
    spans.filter((span) => text(span, "messaging.operation.name") === "process"),
    (span) => `${text(span, "khala.agent")}:${text(span, "artifact.id")}`,
  );
  const rows: CorrelationRow[] = [
    ...artifacts.map(({ id, type, produced_by, created_at }) => ({
      ...EMPTY_ROW,
      id: `artifact:${id}`,
      kind: "artifact" as const,
      name: type,
      producer: produced_by,
      start: Date.parse(created_at),
      artifactId: id,
      refers: id,
    })),
    ...[...tasks].map(([key, attempts]) => workRow(key, attempts, published)),
    ...deadLetters.map(({ id, agent, failed_at, attempts, failure, task }) => ({
      ...EMPTY_ROW,
      id: `dead:${id}`,
      kind: "dead" as const,
      name: agent,
      start: Date.parse(failed_at),
      attempts,
      message: failure.message,
      artifactId: task?.artifacts[0]?.id ?? "",
      refers: id,
    })),
  ];
  return rows.sort(
    (a, b) => a.start - b.start || ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind) || (a.id < b.id ? -1 : 1),
  );
}

type WorkSpan = Pick<Span, "start" | "duration_ms" | "attributes" | "status" | "message">;

/** One agent's attempts on one artifact, and the waits before each. */
function workRow(
  key: string,
  attempts: readonly WorkSpan[],
  published: ReadonlyMap<string, number>,
): CorrelationRow {
  const sorted = attempts.toSorted((a, b) => a.start - b.start);
  const first = sorted[0]!;
  const artifactId = text(first, "artifact.id");
  const phases: Phase[] = [];
  let free = published.get(artifactId);
  for (const [index, { start, duration_ms, attributes, status, message }] of sorted.entries()) {
    if (free !== undefined && start - free >= NOTICEABLE_MS) {
      const kind = index === 0 ? "queued" : "retry";
      phases.push({ kind, start: free, end: start, failed: false, attempt: 0, message: "" });
    }
    const end = start + duration_ms;
    const attempt = Number(attributes["khala.attempt"] ?? index + 1);
    phases.push({ kind: "run", start, end, failed: status === "error", attempt, message });
    free = end;
  }
  return {
    ...EMPTY_ROW,
    id: `work:${key}`,
    kind: "work",
    name: text(first, "khala.agent"),
    start: phases[0]!.start,
    phases,
    attempts: sorted.length,
    artifactId,
    refers: artifactId,
  };
}

const text = ({ attributes }: Pick<Span, "attributes">, name: string) => String(attributes[name] ?? "");
