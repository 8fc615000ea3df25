import type { Statement } from "../../database/database.ts";
import type { Routed } from "../board.ts";
import type { DeadLetter } from "../model/task.ts";
import { unless } from "./arrays.ts";
import type { Claimed, Taking } from "./claimed.ts";
import { correlationColumn } from "./correlation_column.ts";
import { type Lanes, lanesTogether } from "./lanes.ts";

/** What becomes of a claim. */
export interface Settling {
  readonly claim: Claimed;
  readonly kind: "done" | "retry" | "dead";
  readonly delayMs: number;
  /** Whether it leaves its lane: all but a retry of a strict agent. */
  readonly leaves: boolean;
  readonly letter?: DeadLetter;
}

/** Settles claims, in the order in which all take lanes; where outputs follow, every one of them or none. */
export function settleStatement(
  items: readonly Settling[],
  next: Taking,
  outputs: readonly Routed[],
  lanes: Lanes,
): Statement {
  const has = (kind: Settling["kind"]) => items.some((item) => item.kind === kind);
  const retries = <T>(value: (item: Settling) => T) => (has("retry") ? items.map(value) : null);
  const dead = <T>(value: (item: Settling) => T) => (has("dead") ? items.map(value) : null);
  return {
    name: "board_settle",
    text: `SELECT * FROM runtime.board_settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
      $15, $16)`,
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
      dead(({ claim }) => correlationColumn(claim.task.artifacts[0])),
      dead(({ letter }) => (letter ? JSON.stringify(letter) : null)),
      outputs.length > 0,
      unless(false, next.wants),
      next.leaseMs,
      ...laneColumns(outputs, lanes),
    ],
  };
}

/** The lanes that tasks are added to. */
function laneColumns(items: readonly Routed[], lanes: Lanes): unknown[] {
  const laneOf = lanesTogether(items, lanes);
  const places = items
    .flatMap(({ routing }) => routing.tasks)
    .map((task) => ({ agent: task.agent, lane: laneOf(task) }))
    .filter(({ lane }) => lane !== null);
  if (places.length === 0) return [null, null];
  return [places.map(({ agent }) => agent), places.map(({ lane }) => lane)];
}
