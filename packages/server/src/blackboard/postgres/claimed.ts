import type { Task } from "../task.ts";

/** A claim, as its holder knows it. */
export interface Claimed {
  readonly seq: bigint;
  readonly lane: string | null;
  readonly task: Task;
  /** The bundle that it came in. It may have left that since. */
  readonly bundle?: bigint;
}

/** Which tasks this process takes at once, and for how long. */
export interface Taking {
  readonly holder: string;
  readonly leaseMs: number;
  /** By the place of a task among all of them; for settlements: of whose lane it takes the next. */
  readonly wants: readonly boolean[];
}
