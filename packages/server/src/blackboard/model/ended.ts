import type { Task } from "./task.ts";

/** What the settlement of an attempt wants to know of its work. */
export interface Ended {
  readonly startedAt: number;
  readonly endedAt: number;
  /** W3C trace context of the work. */
  readonly trace: string | undefined;
}

/** Where a task carries its attempt that has ended: with the task it is forgotten if nobody settles it. */
const ENDED = Symbol("ended");

interface Carrying {
  [ENDED]?: { readonly attempt: number; readonly ended: Ended } | undefined;
}

/** The attempt has ended. Whoever settles it has the same object. */
export function noteEnded(task: Task & Carrying, ended: Ended): void {
  task[ENDED] = { attempt: task.attempt, ended };
}

/** How the attempt ended, once. */
export function takeEnded(task: Task & Carrying): Ended | undefined {
  const last = task[ENDED];
  // The next attempt may have been made of this one.
  if (last?.attempt !== task.attempt) return undefined;
  task[ENDED] = undefined;
  return last.ended;
}
