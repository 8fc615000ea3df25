import type { DeadLetterJson, FailureJson, TaskJson } from "@khala/contracts/blackboard/v1";
import type { Artifact } from "./artifact.ts";

type Given = "id" | "agent" | "key" | "attempt" | "created_at";

/** Work for one agent. */
export type Task = Readonly<
  Omit<TaskJson, "artifacts"> &
    Required<Pick<TaskJson, Given>> & { readonly artifacts: readonly [Artifact, ...Artifact[]] }
>;

/** Why an attempt did not succeed. */
export type Failure = Readonly<
  Omit<FailureJson, "kind"> &
    Required<Pick<FailureJson, "class" | "message">> & {
      readonly kind: "retryable" | "fatal" | "rate_limited";
    }
>;

/** A task that could not succeed. */
export type DeadLetter = Readonly<
  Omit<DeadLetterJson, "task" | "failure"> &
    Required<Pick<DeadLetterJson, "id" | "agent" | "attempts" | "failed_at" | "origin">> & {
      readonly task?: Task;
      readonly failure: Failure;
    }
>;

/** What becomes of a task: settled as one unit with its place in the queue. */
export type Settlement =
  /** The outputs are published, and the task never runs again. `aside`: it only waits elsewhere now, and nothing was done. */
  | { readonly kind: "done"; readonly outputs: readonly Artifact[]; readonly aside?: boolean }
  /** It runs again after the delay, as the next attempt. */
  | { readonly kind: "retry"; readonly failure: Failure; readonly delayMs: number }
  /** It is parked with its error until a person replays it. */
  | { readonly kind: "dead"; readonly failure: Failure };

/** What makes two executions the same work: every attempt of a task has it, a replay has another. */
export function idempotencyKey({ id, agent, replay_id }: Pick<Task, "id" | "agent" | "replay_id">): string {
  return replay_id ? `${id}:${agent}:${replay_id}` : `${id}:${agent}`;
}
