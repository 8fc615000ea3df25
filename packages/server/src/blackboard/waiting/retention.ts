import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";

export interface RetentionOptions {
  /** How long finished rows are kept: longer than a record can be redelivered, or a dead letter be replayed. */
  readonly keepMs: number;
  readonly everyMs?: number;
  /** Rows of each table per step. */
  readonly batch?: number;
}

/** Finished rows, by table. Pending rows are not among them. */
const OVER = [
  ["board_gathered", "seen_at < $1"],
  ["board_approvals", "decided_at < $1"],
  ["board_replays", "created_at < $1"],
  ["board_set_aside", "failed_at < $1"],
  ["board_controls", "changed_at < $1 AND (kind = 'cancel' OR NOT active)"],
  ["board_totals_added", "added_at < $1"],
  ["board_running", "reported_at < $1"],
] as const;

/** Deletes finished rows: dedup marks, decisions, replays, cancellations. */
export function startRetention(database: Database, context: Context, options: RetentionOptions): Service {
  const { keepMs, everyMs = 600_000, batch = 1_000 } = options;
  return runLoop(context, "board purge", {
    wake: new Wake(),
    idleMs: everyMs,
    async step() {
      const before = new Date(context.clock.now() - keepMs);
      let more = false;
      for (const [table, over] of OVER) {
        const rows = await database.query({
          name: `purge_${table}`,
          text: `DELETE FROM runtime.${table} WHERE ctid = ANY (ARRAY(
              SELECT ctid FROM runtime.${table} WHERE ${over} LIMIT $2 FOR UPDATE SKIP LOCKED
            )) RETURNING 1`,
          values: [before, batch],
        });
        more ||= rows.length === batch;
      }
      return more;
    },
  });
}
