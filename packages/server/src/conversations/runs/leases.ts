import type { Database } from "../../database/database.ts";
import type { ClaimedRun } from "../store.ts";
import type { WrittenOutcome } from "./outcome.ts";

type Tx = Pick<Database, "query">;

/** A run whose server is gone, taken with a new fence. */
export interface LostRun {
  readonly convId: string;
  readonly runId: string;
  readonly org: string;
  readonly subject: string;
  readonly fence: bigint;
  /** Null when its beginning may not be in the log. */
  readonly cursor: string | null;
  readonly trace: string | null;
}

/** A run that has ended, while the authority log may not know. */
export interface UntoldRun {
  readonly runId: string;
  readonly org: string;
  readonly subject: string;
  readonly trace: string | null;
  readonly status: "finished" | "failed" | "stopped";
  readonly error: string | null;
}

/** A conversation that this server holds, by the fence. */
export interface Held {
  readonly convId: string;
  readonly runId: string;
  readonly fence: bigint;
}

/** Who runs what: one server per conversation, as long as it says so, and the next one in the queue after that. */
export interface Leases {
  /** Says that these are still ours; what is left out of the answer is not. */
  renew(held: readonly Held[]): Promise<{ runId: string; stop: string | null }[]>;
  /** The run's beginning is in the log. Answers why it is to be stopped, if it is; undefined when it is no longer ours. */
  started(run: Held, epoch: string, cursor: string): Promise<{ stop: string | null } | undefined>;
  /** The run's beginning is not in the log: the key is free again, and whoever comes next settles what there is. */
  notStarted(run: Held): Promise<void>;
  /**
   * Ends the run and gives the conversation back, or to the next in its queue. Answers whether it was still ours,
   * and what to run next.
   */
  finish(
    run: Held,
    outcome: WrittenOutcome,
    more: { next: boolean; cursor?: string | undefined },
  ): Promise<{ held: boolean; next: ClaimedRun | undefined }>;
  /** Takes the next in the queue of a conversation in which nothing runs. */
  claimNext(convId: string): Promise<ClaimedRun | undefined>;
  /** Conversations in which nothing runs, though something waits. */
  waiting(limit: number): Promise<string[]>;
  /** Takes runs of servers that are gone: of one conversation, or of any. */
  seize(limit: number, convId?: string): Promise<LostRun[]>;
  /** Runs that ended a while ago and were never said to be told. */
  untold(limit: number): Promise<UntoldRun[]>;
  /** The authority log knows the run's end. */
  told(runId: string): Promise<void>;
  /** Lets go of a run without ending it, so that it is taken over at once. */
  letGo(run: Held): Promise<void>;
  /** Lets go of everything that this server holds. */
  letGoOfAll(): Promise<void>;
}

/** Longer than it takes to tell in the usual way. */
const UNTOLD_AFTER_MS = 30_000;

/** Opens the leases of a server. */
export function openLeases(
  database: Database,
  { holder, leaseMs }: { holder: string; leaseMs: number },
): Leases {
  /** Gives the conversation to the next in its queue; whoever calls holds its row. */
  async function next(tx: Tx, convId: string): Promise<ClaimedRun | undefined> {
    const [run] = await tx.query<Omit<ClaimedRun, "convId">>({
      name: "conversation_claim_next",
      text: `WITH claimed AS (
          UPDATE runtime.conversations SET fence = fence + 1, queued = queued - 1, holder = $2, updated_at = now(),
            lease_until = clock_timestamp() + $3 * interval '1 ms',
            run_id = (SELECT run_id FROM runtime.conversation_runs WHERE conv_id = $1 AND status = 'queued'
              ORDER BY place LIMIT 1)
          WHERE conv_id = $1 RETURNING run_id, fence
        )
        UPDATE runtime.conversation_runs r SET status = 'running', fence = claimed.fence, started_at = now()
        FROM claimed WHERE r.run_id = claimed.run_id
        RETURNING r.run_id AS "runId", r.org_id AS org, r.subject, r.message, r.message_id AS "messageId", r.fence, r.trace`,
      values: [convId, holder, leaseMs],
    });
    return run && { convId, ...run };
  }

  return {
    renew: (held) =>
      held.length === 0
        ? Promise.resolve([])
        : database.query({
            name: "conversation_renew",
            text: `UPDATE runtime.conversations c SET lease_until = clock_timestamp() + $4 * interval '1 ms'
              FROM unnest($1::text[], $2::text[], $3::bigint[]) AS mine (conv_id, run_id, fence)
              WHERE c.conv_id = mine.conv_id AND c.fence = mine.fence AND c.run_id = mine.run_id
              RETURNING c.run_id AS "runId",
                (SELECT stop_requested FROM runtime.conversation_runs r WHERE r.run_id = c.run_id) AS stop`,
            values: [
              held.map(({ convId }) => convId),
              held.map(({ runId }) => runId),
              held.map(({ fence }) => fence),
              leaseMs,
            ],
          }),

    async started({ runId, fence }, epoch, cursor) {
      const [row] = await database.query<{ stop: string | null }>({
        name: "conversation_run_started",
        text: `UPDATE runtime.conversation_runs SET epoch = $3, cursor = coalesce(cursor, $4)
          WHERE run_id = $1 AND fence = $2 AND status = 'running' RETURNING stop_requested AS stop`,
        values: [runId, fence, epoch, cursor],
      });
      return row;
    },

    async notStarted({ convId, runId, fence }) {
      await database.query({
        text: `WITH released AS (
            UPDATE runtime.conversations SET lease_until = now() WHERE conv_id = $1 AND fence = $3 AND run_id = $2 RETURNING 1
          )
          UPDATE runtime.conversation_runs SET idempotency_key = NULL
          WHERE run_id = $2 AND EXISTS (SELECT FROM released)`,
        values: [convId, runId, fence],
      });
    },

    finish: ({ convId, runId, fence }, outcome, more) =>
      database.interactive(async (tx) => {
        const [row] = await tx.query<{ queued: number }>({
          name: "conversation_finish_lock",
          text: `SELECT queued FROM runtime.conversations WHERE conv_id = $1 AND fence = $2 AND run_id = $3 FOR UPDATE`,
          values: [convId, fence, runId],
        });
        if (!row) return { held: false, next: undefined };
        await tx.query({
          name: "conversation_finish_run",
          text: `UPDATE runtime.conversation_runs SET status = $2, error = $3, ended_at = now(), message = NULL,
              cursor = coalesce(cursor, $4) WHERE run_id = $1`,
          values: [
            runId,
            outcome.kind,
            outcome.kind === "failed" ? outcome.message : null,
            more.cursor ?? null,
          ],
        });
        const claimed = more.next && row.queued > 0 ? await next(tx, convId) : undefined;
        if (!claimed) {
          await tx.query({
            name: "conversation_give_back",
            text: `UPDATE runtime.conversations SET run_id = NULL, holder = NULL, lease_until = NULL, updated_at = now()
              WHERE conv_id = $1`,
            values: [convId],
          });
        }
        return { held: true, next: claimed };
      }),

    claimNext: (convId) =>
      database.interactive(async (tx) => {
        // What is asked of the row is no condition: an index of all that wait would seem shorter than the key while none does.
        const [row] = await tx.query<{ waits: boolean }>({
          name: "conversation_next_lock",
          text: `SELECT run_id IS NULL AND queued > 0 AND removed_at IS NULL AS waits FROM runtime.conversations
            WHERE conv_id = $1 FOR UPDATE SKIP LOCKED`,
          values: [convId],
        });
        return row?.waits ? next(tx, convId) : undefined;
      }),

    async waiting(limit) {
      const rows = await database.query<{ conv: string }>({
        name: "conversation_waiting",
        text: `SELECT conv_id AS conv FROM runtime.conversations WHERE run_id IS NULL AND queued > 0
          ORDER BY updated_at LIMIT $1`,
        values: [limit],
      });
      return rows.map(({ conv }) => conv);
    },

    seize: (limit, convId) =>
      database.query({
        name: convId === undefined ? "conversation_seize" : "conversation_seize_one",
        text: `WITH dead AS MATERIALIZED (
            SELECT conv_id FROM runtime.conversations
            WHERE run_id IS NOT NULL AND lease_until <= now() ${convId === undefined ? "" : "AND conv_id = $4"}
            ORDER BY lease_until LIMIT $3 FOR UPDATE SKIP LOCKED
          ), taken AS (
            UPDATE runtime.conversations c SET fence = fence + 1, holder = $1,
              lease_until = clock_timestamp() + $2 * interval '1 ms'
            FROM dead WHERE c.conv_id = dead.conv_id RETURNING c.conv_id, c.run_id, c.fence
          )
          SELECT taken.conv_id AS "convId", taken.run_id AS "runId", r.org_id AS org, r.subject, taken.fence, r.cursor, r.trace
          FROM taken JOIN runtime.conversation_runs r ON r.run_id = taken.run_id`,
        values: [holder, leaseMs, limit, ...(convId === undefined ? [] : [convId])],
      }),

    untold: (limit) =>
      database.query({
        name: "conversation_untold",
        text: `SELECT run_id AS "runId", org_id AS org, subject, trace, status, error FROM runtime.conversation_runs
          WHERE NOT told AND ended_at < now() - $2 * interval '1 ms' ORDER BY ended_at LIMIT $1`,
        values: [limit, UNTOLD_AFTER_MS],
      }),

    async told(runId) {
      await database.query({
        name: "conversation_told",
        text: "UPDATE runtime.conversation_runs SET told = true WHERE run_id = $1",
        values: [runId],
      });
    },

    async letGo({ convId, fence }) {
      await database.query({
        text: "UPDATE runtime.conversations SET lease_until = now() WHERE conv_id = $1 AND fence = $2 AND run_id IS NOT NULL",
        values: [convId, fence],
      });
    },

    async letGoOfAll() {
      await database.query({
        text: "UPDATE runtime.conversations SET lease_until = now() WHERE run_id IS NOT NULL AND holder = $1 AND lease_until > now()",
        values: [holder],
      });
    },
  };
}
