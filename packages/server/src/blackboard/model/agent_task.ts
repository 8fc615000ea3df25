import type { AgentTask } from "./agent.ts";
import type { Task } from "./task.ts";
import { workKey } from "./task_lives.ts";

/** What run is given. A copy: what it does to its artifacts is not in the retry or the dead letter. */
export function agentTask(task: Task, trace: string | undefined): AgentTask {
  const artifacts = copyOf(task.artifacts);
  const [artifact] = artifacts;
  return {
    id: task.id,
    artifact,
    artifacts,
    correlationId: artifact.correlation_id,
    attempt: task.attempt,
    idempotencyKey: workKey(task),
    traceparent: trace,
  };
}

/** A copy of JSON. For small values it is many times faster than its text written and read again, or structuredClone. */
export function copyOf<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(copyOf) as T;
  const copy = { ...value };
  for (const name in copy) {
    const member = copy[name];
    if (typeof member === "object") copy[name] = copyOf(member);
    // As in its text, in which such a member is not.
    else if (member === undefined) delete copy[name];
  }
  return copy;
}
