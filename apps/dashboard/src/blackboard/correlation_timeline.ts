/** What the timeline needs to know of an artifact. */
export interface TimelineArtifact {
  readonly id: string;
  readonly type: string;
  readonly produced_by: string;
  readonly created_at: string;
}

/** What the timeline needs to know of a span. */
export interface TimelineSpan {
  readonly span_id: string;
  readonly started_at: string;
  readonly duration_ms: number;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly status: string;
  readonly message?: string | undefined;
}

/** What the timeline needs to know of a dead letter. */
export interface TimelineDeadLetter {
  readonly id: string;
  readonly agent: string;
  readonly failed_at: string;
  readonly attempts: number;
  readonly message: string;
  /** The artifact that it was about, as far as that could be read. */
  readonly artifact_id?: string | undefined;
}

/** A stretch of time within a row. */
export interface Stretch {
  readonly kind: "run" | "waiting" | "retry";
  readonly start: number;
  readonly end: number;
  readonly failed: boolean;
  /** Which attempt it was; 0 for waiting. */
  readonly attempt: number;
  readonly message?: string;
}

/** A line of the timeline: an artifact that appeared, or the work of one agent on one artifact. */
export interface CorrelationRow {
  readonly id: string;
  readonly kind: "artifact" | "work" | "dead";
  /** The type of the artifact, or the agent. */
  readonly name: string;
  /** Who published it, or what the agent worked on. */
  readonly of: string;
  readonly start: number;
  readonly end: number;
  readonly stretches: readonly Stretch[];
  readonly attempts: number;
  readonly failed: boolean;
  readonly message?: string;
  /** The artifact that was worked on; its own id for an artifact, empty when that is not known. */
  readonly about: string;
  /** What to select when a person wants the details. */
  readonly refers: string;
}

/** Under this a wait is the machinery's own, and nothing to show. */
const NOTICEABLE_MS = 5;

/** What came of one request in order of time: artifacts, the work on them with its waits and retries, and what gave up. */
export function correlationRows(
  artifacts: readonly TimelineArtifact[],
  spans: readonly TimelineSpan[],
  deadLetters: readonly TimelineDeadLetter[],
): readonly CorrelationRow[] {
  const appeared = new Map(artifacts.map(({ id, created_at }) => [id, Date.parse(created_at)]));
  const rows = [
    ...artifacts.map(artifactRow),
    ...workRows(spans, appeared),
    ...deadLetters.map((letter) => deadRow(letter)),
  ];
  return rows.sort((a, b) => a.start - b.start || order(a) - order(b) || (a.id < b.id ? -1 : 1));
}

const order = ({ kind }: CorrelationRow) => ["artifact", "work", "dead"].indexOf(kind);

function artifactRow({ id, type, produced_by, created_at }: TimelineArtifact): CorrelationRow {
  const start = Date.parse(created_at);
  return {
    id: `artifact:${id}`,
    kind: "artifact",
    name: type,
    of: produced_by,
    start,
    end: start,
    stretches: [],
    attempts: 0,
    failed: false,
    about: id,
    refers: id,
  };
}

function deadRow({
  id,
  agent,
  failed_at,
  attempts,
  message,
  artifact_id = "",
}: TimelineDeadLetter): CorrelationRow {
  const start = Date.parse(failed_at);
  return {
    id: `dead:${id}`,
    kind: "dead",
    name: agent,
    of: "",
    start,
    end: start,
    stretches: [],
    attempts,
    failed: true,
    message,
    about: artifact_id,
    refers: id,
  };
}

/** One row for each agent and artifact: its attempts, and what was waited before each. */
function workRows(
  spans: readonly TimelineSpan[],
  appeared: ReadonlyMap<string, number>,
): readonly CorrelationRow[] {
  const tasks = new Map<string, TimelineSpan[]>();
  for (const span of spans) {
    if (text(span, "messaging.operation.name") !== "process") continue;
    const key = `${text(span, "khala.agent")}:${text(span, "artifact.id")}`;
    tasks.set(key, [...(tasks.get(key) ?? []), span]);
  }
  return [...tasks].map(([key, attempts]) => workRow(key, attempts, appeared));
}

function workRow(
  key: string,
  attempts: readonly TimelineSpan[],
  appeared: ReadonlyMap<string, number>,
): CorrelationRow {
  const sorted = attempts.toSorted((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at));
  const first = sorted[0]!;
  const refers = text(first, "artifact.id");
  const stretches: Stretch[] = [];
  let free = appeared.get(refers);
  for (const [index, span] of sorted.entries()) {
    const start = Date.parse(span.started_at);
    const end = start + span.duration_ms;
    if (free !== undefined && start - free >= NOTICEABLE_MS)
      stretches.push({
        kind: index === 0 ? "waiting" : "retry",
        start: free,
        end: start,
        failed: false,
        attempt: 0,
      });
    stretches.push({
      kind: "run",
      start,
      end,
      failed: span.status === "error",
      attempt: Number(span.attributes["khala.attempt"] ?? index + 1),
      ...(span.message && { message: span.message }),
    });
    free = end;
  }
  const last = stretches.at(-1)!;
  return {
    id: `work:${key}`,
    kind: "work",
    name: text(first, "khala.agent"),
    of: text(first, "artifact.type"),
    start: stretches[0]!.start,
    end: last.end,
    stretches,
    attempts: sorted.length,
    failed: last.failed,
    ...(last.message !== undefined && { message: last.message }),
    about: refers,
    refers,
  };
}

const text = ({ attributes }: TimelineSpan, name: string) => String(attributes[name] ?? "");
