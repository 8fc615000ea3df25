import type { KhalaClient } from "@khala/client";
import { complete, completeAll } from "../data/wire.ts";

type Board = KhalaClient["board"];
type WireArtifact = Awaited<ReturnType<Board["artifact"]>>;
type WireLetter = Awaited<ReturnType<Board["deadLetter"]>>;
type WireTask = NonNullable<WireLetter["task"]>;

const ARTIFACT = {
  id: "",
  type: "",
  /** Undefined if this user may not see it; null is a payload. */
  payload: undefined as unknown,
  correlation_id: "",
  partition_key: "",
  tags: [""],
  produced_by: "",
  version: 1,
  traceparent: "",
  created_at: "",
  depth: 0,
};
const TASK = { id: "", agent: "", key: "", attempt: 1, created_at: "" };
const DEAD_LETTER = {
  id: "",
  agent: "",
  failure: { class: "", message: "", stack: "", kind: "" },
  attempts: 0,
  failed_at: "",
  origin: "",
  raw: "",
  replay_id: "",
};
const AGENT = {
  name: "",
  consumes: [""],
  state: "running",
  waiting: 0,
  running: 0,
  done: 0,
  retried: 0,
  dead: 0,
  /** Artifacts by type; 64-bit numbers as text. */
  published: {} as Readonly<Record<string, string>>,
};
const PARTITION_LAG = { reader: "", topic: "", partition: 0, lag: 0, lag_high: 0 };

export type Artifact = ReturnType<typeof readArtifact>;
export type Task = ReturnType<typeof readTask>;
export type DeadLetter = ReturnType<typeof readDeadLetter>;
export type Agent = Readonly<typeof AGENT>;
export type PartitionLag = Readonly<typeof PARTITION_LAG>;

/** Reads an artifact. */
export function readArtifact(wire: WireArtifact) {
  const { kind = "org", labels = [], agents = [] } = wire.visibility ?? {};
  return { ...complete(ARTIFACT, wire), visibility: [kind, ...labels, ...agents].join(" ") };
}

/** Reads a task. */
export function readTask(wire: WireTask) {
  return { ...complete(TASK, wire), artifacts: (wire.artifacts ?? []).map(readArtifact) };
}

/** Reads a dead letter. It has no task when the record could not be decoded. */
export function readDeadLetter(wire: WireLetter) {
  return { ...complete(DEAD_LETTER, wire), task: wire.task && readTask(wire.task) };
}

/** Reads the list of agents. */
export function readAgents({ agents }: Awaited<ReturnType<Board["agents"]>>): readonly Agent[] {
  return completeAll(AGENT, agents);
}

/** Reads the lag of all readers. */
export function readLag({ partitions }: Awaited<ReturnType<Board["lag"]>>): readonly PartitionLag[] {
  return completeAll(PARTITION_LAG, partitions);
}
