import type { Settlement, Task } from "../model/task.ts";

/** A claim, as its holder knows it. */
export interface Claimed {
  readonly seq: bigint;
  readonly lane: string | null;
  readonly task: Task;
  /** The bundle that it came in. It may have left that since. */
  readonly bundle?: bigint;
  /** How far it is from the first of that. */
  readonly at?: number;
  /** Those whose leases are kept together with its own, while somebody keeps it, and its place among them. */
  hold?: Hold | undefined;
  place?: number;
}

/** Claims whose leases are as old. */
export interface Hold {
  /** Nothing in the place of those that were let go: others may take long, and what they came with is not kept for them. */
  readonly claims: (Claimed | undefined)[];
  /** How many were not. */
  open: number;
  readonly lost: (claim: Claimed) => void;
  readonly renewedAt: number;
}

/** A claim that came in a bundle. Few ask for its number. */
export class BundledClaim implements Claimed {
  readonly lane = null;
  readonly task: Task;
  readonly bundle: bigint;
  readonly at: number;
  hold: Hold | undefined = undefined;
  place = 0;

  constructor(task: Task, bundle: bigint, at: number) {
    this.task = task;
    this.bundle = bundle;
    this.at = at;
  }

  get seq(): bigint {
    return this.bundle + BigInt(this.at);
  }
}

/** A claim whose work has ended, and what is to become of it. */
export interface Finished {
  readonly claim: Claimed;
  readonly settlement: Settlement;
}

/** Which tasks this process takes at once, and for how long. */
export interface Taking {
  readonly holder: string;
  readonly leaseMs: number;
  /** By the place of a task among all of them; for settlements: of whose lane it takes the next. */
  readonly wants: readonly boolean[];
}
