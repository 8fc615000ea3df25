import type { Database, Row, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import type { Board } from "../board.ts";
import { type Artifact, versionKey } from "../model/artifact.ts";
import { idempotencyKey, type Task } from "../model/task.ts";
import { setAsideStatement } from "../observe/set_aside_items.ts";
import { type Due, type Sweep, type SweepOptions, startSweep } from "../waiting/sweep.ts";

/** An artifact or a task that the outbox sends to the board. */
export type OutboxEntry =
  | { readonly kind: "task"; readonly body: Task }
  | { readonly kind: "artifact"; readonly body: Artifact };

type OutboxRow = OutboxEntry & { readonly id: bigint };

/** Inserts an entry as part of the transaction that caused it. A pending entry with the same reference is kept. */
export function insertIntoOutbox(parcel: OutboxEntry, due: Date, notBefore: Date | null = null): Statement {
  return {
    name: "board_outbox_add",
    text: `INSERT INTO runtime.board_outbox (kind, ref, org_id, correlation_id, body, due_at, not_before)
      VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING 1 AS added`,
    values: outboxValues(parcel, due, notBefore),
  };
}

/** The columns kind, ref, org_id, correlation_id, body, due_at and not_before of an entry. */
export function outboxValues(parcel: OutboxEntry, due: Date, notBefore: Date | null = null): unknown[] {
  const { kind, ref, org, correlationId, body } = rowOf(parcel);
  return [kind, ref, org, correlationId, body, due, notBefore];
}

/** The columns of an entry that do not depend on time. */
export function rowOf({ kind, body }: OutboxEntry) {
  const artifact = kind === "task" ? body.artifacts[0] : body;
  return {
    kind,
    ref: kind === "task" ? idempotencyKey(body) : versionKey(body),
    org: artifact.org_id,
    correlationId: artifact.correlation_id ?? null,
    body: JSON.stringify(body),
  };
}

const LOOP = "board outbox";

/** Sends due entries of the outbox to the board. Several servers share the work; the board drops duplicates. */
export function startOutbox(
  database: Database,
  board: Pick<Board, "publish" | "enqueue">,
  context: Context,
  options: SweepOptions,
): Sweep {
  const due: Due<OutboxRow> = {
    async claim(now, until, limit) {
      const rows = await database.query<OutboxRow>({
        name: "board_outbox_claim",
        text: `WITH due AS MATERIALIZED (
            SELECT outbox_id FROM runtime.board_outbox WHERE due_at <= $1 ORDER BY due_at, outbox_id LIMIT $3
            FOR UPDATE SKIP LOCKED
          )
          UPDATE runtime.board_outbox o SET due_at = $2 FROM due WHERE o.outbox_id = due.outbox_id
          RETURNING o.outbox_id AS id, o.kind, o.body`,
        values: [now, until, limit],
      });
      return rows.sort((a, b) => (a.id < b.id ? -1 : 1));
    },

    async send(rows) {
      const tasks = rows.flatMap((row) => (row.kind === "task" ? [row.body] : []));
      const artifacts = rows.flatMap((row) => (row.kind === "artifact" ? [row.body] : []));
      if (tasks.length > 0) await board.enqueue(tasks);
      if (artifacts.length > 0) await board.publish(artifacts);
    },

    async finish(rows) {
      await database.query(removal(rows));
    },

    async refuse(row, error) {
      const agent = row.kind === "task" ? row.body.agent : "";
      const item = { loop: LOOP, ...rowOf(row), item: row.body.id, agent };
      await database.transaction([setAsideStatement(item, error), removal([row])]);
    },

    async release(rows, now) {
      await database.query({
        name: "board_outbox_release",
        text: "UPDATE runtime.board_outbox SET due_at = $2 WHERE outbox_id = ANY ($1::bigint[])",
        values: [ids(rows), now],
      });
    },

    async next() {
      const [row] = await database.query<Row & { due: Date | null }>({
        name: "board_outbox_next",
        text: "SELECT min(due_at) AS due FROM runtime.board_outbox",
      });
      return row?.due ?? undefined;
    },

    orgOf: ({ kind, body }) => (kind === "task" ? body.artifacts[0] : body).org_id,
    describe: ({ kind, body }) => ({ kind, id: body.id, ...(kind === "task" && { agent: body.agent }) }),
  };
  return startSweep(context, LOOP, due, options);
}

const ids = (rows: readonly OutboxRow[]) => rows.map(({ id }) => id);

function removal(rows: readonly OutboxRow[]): Statement {
  return {
    name: "board_outbox_finish",
    text: "DELETE FROM runtime.board_outbox WHERE outbox_id = ANY ($1::bigint[])",
    values: [ids(rows)],
  };
}
