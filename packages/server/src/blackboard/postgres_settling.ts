import type { Statement } from "../database/database.ts";
import { type Taking, unless } from "./postgres_statements.ts";
import type { DeadLetter, Task } from "./task.ts";

/** A claim, as its holder knows it. */
export interface Claimed {
  readonly seq: bigint;
  readonly lane: string | null;
  readonly task: Task;
}

/** What becomes of a claim. */
export interface Settling {
  readonly claim: Claimed;
  readonly kind: "done" | "retry" | "dead";
  readonly delayMs: number;
  /** Whether it leaves its lane: all but a retry of a strict agent. */
  readonly leaves: boolean;
  readonly letter?: DeadLetter;
}

/** Settles claims, in the order in which all take lanes; with `all`, every one of them or none. */
export function settleStatement(items: readonly Settling[], next: Taking, all: boolean): Statement {
  const has = (kind: Settling["kind"]) => items.some((item) => item.kind === kind);
  const retries = <T>(value: (item: Settling) => T) => (has("retry") ? items.map(value) : null);
  const dead = <T>(value: (item: Settling) => T) => (has("dead") ? items.map(value) : null);
  return {
    name: "board_settle",
    text: "SELECT * FROM runtime.board_settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
    values: [
      next.holder,
      items.map(({ claim }) => claim.seq),
      unless(
        1,
        items.map(({ claim }) => claim.task.attempt),
      ),
      unless(
        "done",
        items.map(({ kind }) => kind),
      ),
      retries(({ delayMs }) => Math.max(0, Math.round(delayMs))),
      dead(({ claim }) => claim.task.agent),
      retries(({ leaves }) => leaves),
      dead(({ letter }) => letter?.id ?? null),
      dead(({ claim }) => claim.task.id),
      dead(({ claim }) => claim.task.artifacts[0].correlation_id ?? null),
      dead(({ letter }) => (letter ? JSON.stringify(letter) : null)),
      all,
      unless(false, next.wants),
      next.leaseMs,
    ],
  };
}
