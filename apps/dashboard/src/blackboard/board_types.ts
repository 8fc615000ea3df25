import type { FlowAgent } from "./flow_graph.ts";

/** An artifact with every field that a screen reads. */
export interface Artifact {
  readonly id: string;
  readonly type: string;
  /** Undefined if it is not for this person; null is a payload. */
  readonly payload: unknown;
  readonly correlation_id: string;
  readonly partition_key: string;
  readonly tags: readonly string[];
  readonly produced_by: string;
  readonly visibility: string;
  readonly version: number;
  readonly traceparent: string;
  readonly created_at: string;
  readonly depth: number;
}

export interface Task {
  readonly id: string;
  readonly agent: string;
  readonly artifacts: readonly Artifact[];
  readonly key: string;
  readonly attempt: number;
  readonly created_at: string;
}

export interface DeadLetter {
  readonly id: string;
  readonly agent: string;
  /** Absent when the record could not be decoded. */
  readonly task: Task | undefined;
  readonly failure: {
    readonly class: string;
    readonly message: string;
    readonly stack: string;
    readonly kind: string;
  };
  readonly attempts: number;
  readonly failed_at: string;
  readonly origin: string;
  readonly raw: string;
  readonly replay_id: string;
}

export interface Approval {
  readonly id: string;
  readonly task: Task;
  readonly created_at: string;
}

export interface PartitionLag {
  readonly reader: string;
  readonly topic: string;
  readonly partition: number;
  readonly lag: number;
  readonly lag_high: number;
}

/** A message as JSON leaves it: every field may be absent, and 64-bit numbers are texts. */
type Wire<T> = { readonly [K in keyof T]?: WireField<T[K]> | undefined };
type WireField<F> = F extends number
  ? number | string
  : F extends readonly (infer Item)[]
    ? readonly WireField<Item>[]
    : F extends string
      ? string
      : F extends object
        ? Wire<F>
        : unknown;

type WireArtifact = Wire<Omit<Artifact, "visibility" | "payload">> & {
  readonly payload?: unknown;
  readonly visibility?: {
    readonly kind?: string;
    readonly labels?: readonly string[];
    readonly agents?: readonly string[];
  };
};
type WireTask = Wire<Omit<Task, "artifacts">> & { readonly artifacts?: readonly WireArtifact[] };
type WireLetter = Wire<Omit<DeadLetter, "task">> & { readonly task?: WireTask };

/** The artifact of an answer, with nothing missing. */
export function readArtifact(wire: WireArtifact): Artifact {
  const { kind = "org", labels = [], agents = [] } = wire.visibility ?? {};
  return {
    id: wire.id ?? "",
    type: wire.type ?? "",
    payload: wire.payload,
    correlation_id: wire.correlation_id ?? "",
    partition_key: wire.partition_key ?? "",
    tags: wire.tags ?? [],
    produced_by: wire.produced_by ?? "",
    visibility: [kind, ...labels, ...agents].join(" "),
    version: Number(wire.version ?? 1),
    traceparent: wire.traceparent ?? "",
    created_at: wire.created_at ?? "",
    depth: Number(wire.depth ?? 0),
  };
}

/** The task of an answer, with nothing missing. */
export function readTask(wire: WireTask): Task {
  return {
    id: wire.id ?? "",
    agent: wire.agent ?? "",
    artifacts: (wire.artifacts ?? []).map(readArtifact),
    key: wire.key ?? "",
    attempt: Number(wire.attempt ?? 1),
    created_at: wire.created_at ?? "",
  };
}

/** The dead letter of an answer, with nothing missing. */
export function readDeadLetter(wire: WireLetter): DeadLetter {
  const { class: name = "", message = "", stack = "", kind = "" } = wire.failure ?? {};
  return {
    id: wire.id ?? "",
    agent: wire.agent ?? "",
    task: wire.task && readTask(wire.task),
    failure: { class: name, message, stack, kind },
    attempts: Number(wire.attempts ?? 0),
    failed_at: wire.failed_at ?? "",
    origin: wire.origin ?? "",
    raw: wire.raw ?? "",
    replay_id: wire.replay_id ?? "",
  };
}

/** The agent of an answer, with its counts as numbers. */
export function readAgent(wire: Wire<FlowAgent>): FlowAgent {
  return {
    name: wire.name ?? "",
    consumes: wire.consumes ?? [],
    state: wire.state ?? "running",
    waiting: Number(wire.waiting ?? 0),
    running: Number(wire.running ?? 0),
    done: Number(wire.done ?? 0),
    retried: Number(wire.retried ?? 0),
    dead: Number(wire.dead ?? 0),
  };
}

/** The lag of an answer, with its counts as numbers. */
export function readLag(wire: Wire<PartitionLag>): PartitionLag {
  return {
    reader: wire.reader ?? "",
    topic: wire.topic ?? "",
    partition: Number(wire.partition ?? 0),
    lag: Number(wire.lag ?? 0),
    lag_high: Number(wire.lag_high ?? 0),
  };
}
