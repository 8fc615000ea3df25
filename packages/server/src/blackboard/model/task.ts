import type { DeadLetterJson, FailureJson, TaskJson } from "@khala/contracts/blackboard/v1";
import type { Artifact } from "./artifact.ts";

type Given = "id" | "agent" | "key" | "attempt" | "created_at";

/** Work for one agent. */
export type Task = Readonly<
  Omit<TaskJson, "artifacts"> &
    Required<Pick<TaskJson, Given>> & { readonly artifacts: readonly [Artifact, ...Artifact[]] }
>;

/** Why an attempt failed. */
export type Failure = Readonly<
  Omit<FailureJson, "kind"> &
    Required<Pick<FailureJson, "class" | "message">> & {
      readonly kind: "retryable" | "fatal" | "rate_limited";
    }
>;

/** A task that failed for good. */
export type DeadLetter = Readonly<
  Omit<DeadLetterJson, "task" | "failure"> &
    Required<Pick<DeadLetterJson, "id" | "agent" | "attempts" | "failed_at" | "origin">> & {
      readonly task?: Task;
      readonly failure: Failure;
    }
>;

/** When an attempt ran, for metrics and traces. It is not stored. */
export interface AttemptTiming {
  readonly startedAt: number;
  readonly endedAt: number;
  /** W3C trace context of the attempt. */
  readonly trace: string | undefined;
}

/** The outcome of a task. It is stored in one transaction with the task's position in the queue. */
export type Settlement = {
  readonly attempt?: AttemptTiming;
} /** Publishes the outputs; the task never runs again. `aside`: the task was moved to a waiting list without running. */ & (
  | { readonly kind: "done"; readonly outputs: readonly Artifact[]; readonly aside?: boolean }
  /** Runs the task again after the delay, as the next attempt. */
  | {
      readonly kind: "retry";
      readonly failure: Failure;
      readonly delayMs: number;
      /** The task did not run, so it keeps the number of its attempt. */
      readonly uncounted?: true;
    }
  /** Makes it a dead letter, which a person can replay. */
  | { readonly kind: "dead"; readonly failure: Failure }
);

/** The identity of a task's work. */
type Identified = Pick<Task, "id" | "agent" | "replay_id" | "artifacts">;

/**
 * Identifies the work among all orgs: every attempt of a task has the same key, a replay has another one. The org is the
 * last, since it alone may have any character.
 */
export function idempotencyKey({ id, agent, replay_id, artifacts }: Identified): string {
  const [{ org_id }] = artifacts;
  return replay_id ? `${id}:${agent}:${replay_id}@${org_id}` : `${id}:${agent}@${org_id}`;
}

/** Separates the replay id of a task from the number of its last pause. It sorts before the characters of ids. */
const MARK = "+";
const DIGITS = 12;
const UUID_V7 = /^([0-9a-f]{8})-([0-9a-f]{4})-7/;

/** The task as it is enqueued after a pause. The board has settled the original, so this one needs another replay id. */
export function resumedTask(task: Task, pause: bigint): Task {
  const replay = `${replayOf(task)}${MARK}${String(pause).padStart(DIGITS, "0")}`;
  return { ...task, attempt: 1, replay_id: replay };
}

/** The number of the task's last pause. */
export function pauseOf({ replay_id = "" }: Pick<Task, "replay_id">): bigint | undefined {
  const at = replay_id.indexOf(MARK);
  return at < 0 ? undefined : BigInt(replay_id.slice(at + 1));
}

/** The key that agents see and that output ids are derived from: unchanged by a pause, changed by a replay. */
export function workKey(task: Identified): string {
  const { id, agent, artifacts } = task;
  return idempotencyKey({ id, agent, artifacts, replay_id: replayOf(task) });
}

/** When the task was created: by its artifact, or by its replay. Milliseconds. */
export function createdAt(task: Pick<Task, "created_at" | "replay_id">): number {
  const time = UUID_V7.exec(task.replay_id ?? "");
  return time ? Number.parseInt(`${time[1]}${time[2]}`, 16) : Date.parse(task.created_at);
}

/** The conversation that the work belongs to: that of all its artifacts. */
export function conversationOf({ artifacts }: Pick<Task, "artifacts">): Artifact["conversation"] {
  const [{ conversation }] = artifacts;
  const same = (other: Artifact["conversation"]) =>
    other?.conv_id === conversation?.conv_id && other?.generation === conversation?.generation;
  return artifacts.every((artifact) => same(artifact.conversation)) ? conversation : undefined;
}

function replayOf({ replay_id = "" }: Pick<Task, "replay_id">): string {
  const at = replay_id.indexOf(MARK);
  return at < 0 ? replay_id : replay_id.slice(0, at);
}
