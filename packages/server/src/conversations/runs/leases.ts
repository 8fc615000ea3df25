import type { PendingCallJson } from "@khala/contracts/conversation/v1";
import type { Database } from "../../database/database.ts";
import type { ConversationId, ConversationRef, LeasedRun } from "../conversation.ts";
import type { Cursor } from "../log/cursor.ts";
import { endMessages } from "../messages/message_store.ts";
import { insertQuestion, removeQuestion, type StoredQuestion } from "../messages/question.ts";
import type { ClaimedRun } from "../queue/admission.ts";
import { parkRun, wakeRun } from "../waiting/awaited_calls.ts";
import type { StoredOutcome } from "./outcome.ts";

type Tx = Pick<Database, "query">;

/** A run whose lease expired, claimed with a new fencing token. */
export interface OrphanedRun extends ConversationRef {
  readonly runId: string;
  readonly subject: string;
  readonly sender: string;
  readonly message: string;
  readonly messageId: string;
  readonly regenerate: string | null;
  readonly edit: string | null;
  readonly parts: ClaimedRun["parts"];
  readonly params: ClaimedRun["params"];
  readonly tools: ClaimedRun["tools"];
  readonly fence: bigint;
  /** Null when the run's start may not be in the log. */
  readonly cursor: string | null;
  readonly trace: string | null;
  /** Why the run shall stop. */
  readonly stop: string | null;
  /** How often it was resumed after its server was lost. */
  readonly resumed: number;
  /** Whether it waited for a person, and continues or ends now. No server was lost. */
  readonly waited: boolean;
}

/** An ended run whose end may not be in the authority log. */
export interface UnreportedRun {
  readonly runId: string;
  readonly org: string;
  readonly subject: string;
  readonly trace: string | null;
  readonly status: "finished" | "failed" | "stopped";
  readonly error: string | null;
}

/** Leases: one server runs a conversation's run, and the next queued run after it. */
export interface Leases {
  /** Renews the leases; runs that are missing in the result are lost. */
  renew(held: readonly LeasedRun[]): Promise<{ runId: string; stop: string | null }[]>;
  /**
   * Stores that the run's start is in the log, between the cursor and `at`. Returns a requested stop, if any; undefined when
   * the lease is lost.
   */
  started(run: LeasedRun, cursor: string, at: Cursor): Promise<{ stop: string | null } | undefined>;
  /** The run's start could not be written: removes its message, frees the idempotency key and releases the lease. */
  startFailed(run: LeasedRun): Promise<void>;
  /**
   * Ends the run, and releases the conversation or claims its next queued run. Returns whether the lease was still held,
   * and the next run.
   */
  finish(
    run: LeasedRun,
    outcome: StoredOutcome,
    more: { next: boolean; cursor?: string | undefined },
  ): Promise<{ held: boolean; next: ClaimedRun | undefined }>;
  /**
   * Lets a run wait for its tool calls without a server. If it was stopped in between, a takeover ends it: then, and when the
   * lease is lost, false.
   */
  park(run: LeasedRun, calls: readonly PendingCallJson[]): Promise<boolean>;
  /** Gives a waiting run a lease that has ended: the next takeover continues or ends it. */
  wake(run: ConversationId & { readonly runId: string }): Promise<void>;
  /** Claims the next queued run of a conversation without an active run. */
  claimNext(conversation: ConversationId): Promise<ClaimedRun | undefined>;
  /** Conversations with a queue and without an active run, of all orgs but these. */
  queuedConversations(limit: number, except: readonly string[]): Promise<ConversationId[]>;
  /** Claims runs with expired leases: of one conversation, or of any. */
  claimExpired(limit: number, conversation?: ConversationId): Promise<OrphanedRun[]>;
  /** Continues an orphaned run on this server, under its new fence. Nobody posts until it has `started`. False when the lease is lost. */
  adopt(run: LeasedRun, resumed: number): Promise<boolean>;
  /** The milliseconds until the first lease of any server ends; undefined without leases. */
  nextExpiry(): Promise<number | undefined>;
  /** Whether the conversation is deleted, or is being deleted. */
  isDeleted(conversation: ConversationRef): Promise<boolean>;
  /** Runs that ended a while ago and are not marked as reported. */
  unreported(limit: number): Promise<UnreportedRun[]>;
  /** Marks that the run's end is in the authority log. */
  markReported(run: { readonly org: string; readonly runId: string }): Promise<void>;
  /** Releases the lease without ending the run, so that it is taken over at once. */
  release(run: LeasedRun): Promise<void>;
  /** Releases all leases of this server. */
  releaseAll(): Promise<void>;
}

/** Longer than reporting normally takes. */
const UNREPORTED_AFTER_MS = 30_000;

/** A queued message whose id has become that of an answer. */
const NOT_STORED: StoredQuestion = {
  parentId: null,
  askedAt: "",
  author: null,
  siblings: null,
  answers: [],
  forks: false,
};

/** Opens the leases of a server. */
export function openLeases(
  database: Database,
  { holder, leaseMs }: { holder: string; leaseMs: number },
): Leases {
  /** Claims the next queued run. The caller holds the lock on the conversation's row. */
  async function claimQueued(tx: Tx, { org, convId }: ConversationId): Promise<ClaimedRun | undefined> {
    const [run] = await tx.query<Omit<ClaimedRun, keyof StoredQuestion>>({
      name: "conversation_claim_next",
      text: `WITH claimed AS (
          UPDATE runtime.conversations SET fence = fence + 1, queued = queued - 1, run_status = 'running', holder = $3, updated_at = now(),
            lease_until = clock_timestamp() + $4 * interval '1 ms',
            run_id = (SELECT run_id FROM runtime.conversation_runs
              WHERE org_id = $1 AND conv_id = $2 AND status = 'queued' ORDER BY place LIMIT 1)
          WHERE org_id = $1 AND conv_id = $2 RETURNING org_id, generation, log_name, run_id, fence
        )
        UPDATE runtime.conversation_runs r SET status = 'running', fence = claimed.fence, started_at = now()
        FROM claimed WHERE r.org_id = claimed.org_id AND r.run_id = claimed.run_id
        RETURNING r.org_id AS org, r.conv_id AS "convId", claimed.generation, claimed.log_name AS "logName", r.run_id AS "runId",
          r.subject, r.sender, r.message, r.message_id AS "messageId", r.parts, r.params, r.regenerate, r.edit, r.tools, r.fence,
          r.trace,
          true AS dequeued`,
      values: [org, convId, holder, leaseMs],
    });
    const stored = run && (await insertQuestion(tx, run));
    return run && { ...run, ...(stored ?? NOT_STORED) };
  }

  return {
    renew: (held) =>
      held.length === 0
        ? Promise.resolve([])
        : database.query({
            name: "conversation_renew",
            text: `UPDATE runtime.conversations c SET lease_until = clock_timestamp() + $5 * interval '1 ms'
              FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS mine (org_id, conv_id, run_id, fence)
              WHERE c.org_id = mine.org_id AND c.conv_id = mine.conv_id AND c.fence = mine.fence AND c.run_id = mine.run_id
              RETURNING c.run_id AS "runId", (
                SELECT stop_requested FROM runtime.conversation_runs r WHERE r.org_id = c.org_id AND r.run_id = c.run_id
              ) AS stop`,
            values: [
              held.map(({ org }) => org),
              held.map(({ convId }) => convId),
              held.map(({ runId }) => runId),
              held.map(({ fence }) => fence),
              leaseMs,
            ],
          }),

    async started({ org, runId, fence }, cursor, at) {
      const [row] = await database.query<{ stop: string | null }>({
        name: "conversation_run_started",
        // A queued run has the position from when it was queued. If the log was lost since, it is of another epoch.
        text: `WITH started AS (
            UPDATE runtime.conversation_runs
            SET epoch = $4, cursor = CASE WHEN starts_with(cursor, $4 || '.') THEN cursor ELSE $5 END
            WHERE org_id = $1 AND run_id = $2 AND fence = $3 AND status = 'running' RETURNING stop_requested AS stop
          ), placed AS (
            UPDATE runtime.messages SET log_epoch = $4, log_seq = $6, log_time = $7
            WHERE org_id = $1 AND run_id = $2 AND log_epoch IS NULL AND EXISTS (SELECT FROM started)
          )
          SELECT stop FROM started`,
        values: [org, runId, fence, at.epoch, cursor, at.seq, at.time],
      });
      return row;
    },

    async startFailed({ org, convId, runId, fence }) {
      await database.interactive(async (tx) => {
        const released = await tx.query({
          text: `UPDATE runtime.conversations SET lease_until = now()
            WHERE org_id = $1 AND conv_id = $2 AND run_id = $3 AND fence = $4 RETURNING 1`,
          values: [org, convId, runId, fence],
        });
        if (released.length === 0) return;
        await tx.query({
          text: "UPDATE runtime.conversation_runs SET idempotency_key = NULL WHERE org_id = $1 AND run_id = $2",
          values: [org, runId],
        });
        await removeQuestion(tx, { org, convId, runId });
      });
    },

    finish: ({ org, convId, runId, fence }, outcome, more) =>
      database.interactive(async (tx) => {
        const [row] = await tx.query<{ queued: number }>({
          name: "conversation_finish_lock",
          text: `SELECT queued FROM runtime.conversations
            WHERE org_id = $1 AND conv_id = $2 AND fence = $3 AND run_id = $4 FOR UPDATE`,
          values: [org, convId, fence, runId],
        });
        if (!row) return { held: false, next: undefined };
        await tx.query({
          name: "conversation_finish_run",
          text: `WITH withdrawn AS (
              UPDATE runtime.awaited_calls SET state = 'withdrawn'
              WHERE org_id = $1 AND conv_id = $9 AND run_id = $2 AND state = 'pending'
            )
            UPDATE runtime.conversation_runs SET status = $3, error = $4, error_code = $5, error_id = $6, error_detail = $7,
              ended_at = now(), message = NULL, cursor = coalesce(cursor, $8) WHERE org_id = $1 AND run_id = $2`,
          values: [org, runId, outcome.kind, ...errorColumns(outcome), more.cursor ?? null, convId],
        });
        await endMessages(tx, { org, runId }, outcome.kind === "finished" ? "done" : outcome.kind);
        const claimed = more.next && row.queued > 0 ? await claimQueued(tx, { org, convId }) : undefined;
        if (!claimed) {
          await tx.query({
            name: "conversation_give_back",
            text: `UPDATE runtime.conversations SET run_id = NULL, run_status = $3, holder = NULL, lease_until = NULL, updated_at = now()
              WHERE org_id = $1 AND conv_id = $2`,
            values: [org, convId, outcome.kind],
          });
        }
        return { held: true, next: claimed };
      }),

    park: (run, calls) => database.interactive((tx) => parkRun(tx, run, calls)),

    async wake(run) {
      await database.query(wakeRun(run));
    },

    claimNext: ({ org, convId }) =>
      database.interactive(async (tx) => {
        // Not in WHERE: while nothing is queued, the planner would prefer the partial index of queued rows to the primary key.
        const [row] = await tx.query<{ waits: boolean }>({
          name: "conversation_next_lock",
          text: `SELECT run_id IS NULL AND queued > 0 AND removed_at IS NULL AS waits FROM runtime.conversations
            WHERE org_id = $1 AND conv_id = $2 FOR UPDATE SKIP LOCKED`,
          values: [org, convId],
        });
        return row?.waits ? claimQueued(tx, { org, convId }) : undefined;
      }),

    queuedConversations: (limit, except) =>
      database.query({
        name: "conversation_waiting",
        text: `SELECT org_id AS org, conv_id AS "convId" FROM runtime.conversations
          WHERE run_id IS NULL AND queued > 0 AND org_id <> ALL ($2::text[]) ORDER BY updated_at LIMIT $1`,
        values: [limit, except],
      }),

    claimExpired: (limit, one) =>
      database.query({
        name: one ? "conversation_seize_one" : "conversation_seize",
        text: `WITH dead AS MATERIALIZED (
            SELECT org_id, conv_id FROM runtime.conversations
            WHERE run_id IS NOT NULL AND lease_until <= now() ${one ? "AND org_id = $4 AND conv_id = $5" : ""}
            ORDER BY lease_until LIMIT $3 FOR UPDATE SKIP LOCKED
          ), taken AS (
            UPDATE runtime.conversations c SET fence = fence + 1, holder = $1,
              lease_until = clock_timestamp() + $2 * interval '1 ms'
            FROM dead WHERE c.org_id = dead.org_id AND c.conv_id = dead.conv_id
            RETURNING c.org_id, c.conv_id, c.generation, c.log_name, c.run_id, c.fence
          )
          SELECT taken.org_id AS org, taken.conv_id AS "convId", taken.generation, taken.log_name AS "logName",
            taken.run_id AS "runId", r.subject, r.sender, coalesce(r.message, '') AS message, r.message_id AS "messageId",
            r.parts, r.params, r.regenerate, r.edit, r.tools, taken.fence, r.cursor, r.trace, r.stop_requested AS stop, r.resumed,
            r.status = 'waiting' AS waited
          FROM taken JOIN runtime.conversation_runs r ON r.run_id = taken.run_id AND r.org_id = taken.org_id`,
        values: [holder, leaseMs, limit, ...(one ? [one.org, one.convId] : [])],
      }),

    async adopt({ org, convId, runId, fence }, resumed) {
      const adopted = await database.query({
        text: `UPDATE runtime.conversation_runs r SET fence = $4, resumed = $5, status = 'running', epoch = NULL FROM runtime.conversations c
          WHERE r.org_id = $1 AND r.run_id = $3 AND r.status IN ('running', 'waiting')
            AND c.org_id = $1 AND c.conv_id = $2 AND c.run_id = $3 AND c.fence = $4 RETURNING 1`,
        values: [org, convId, runId, fence, resumed],
      });
      return adopted.length > 0;
    },

    async nextExpiry() {
      const [row] = await database.query<{ ms: number }>({
        name: "conversation_next_expiry",
        text: `SELECT (extract(epoch FROM lease_until - clock_timestamp()) * 1000)::float8 AS ms FROM runtime.conversations
          WHERE lease_until IS NOT NULL ORDER BY lease_until LIMIT 1`,
      });
      return row?.ms;
    },

    async isDeleted({ org, convId, generation }) {
      const [row] = await database.query<{ there: boolean }>({
        text: `SELECT EXISTS (SELECT FROM runtime.conversations
          WHERE org_id = $1 AND conv_id = $2 AND generation = $3 AND removed_at IS NULL) AS there`,
        values: [org, convId, generation],
      });
      return !row!.there;
    },

    unreported: (limit) =>
      database.query({
        name: "conversation_unreported",
        text: `SELECT run_id AS "runId", org_id AS org, subject, trace, status, error FROM runtime.conversation_runs
          WHERE NOT reported AND ended_at < now() - $2 * interval '1 ms' ORDER BY ended_at LIMIT $1`,
        values: [limit, UNREPORTED_AFTER_MS],
      }),

    async markReported({ org, runId }) {
      await database.query({
        name: "conversation_reported",
        text: "UPDATE runtime.conversation_runs SET reported = true WHERE org_id = $1 AND run_id = $2",
        values: [org, runId],
      });
    },

    async release({ org, convId, runId, fence }) {
      await database.query({
        text: `UPDATE runtime.conversations SET lease_until = now()
          WHERE org_id = $1 AND conv_id = $2 AND run_id = $3 AND fence = $4`,
        values: [org, convId, runId, fence],
      });
    },

    async releaseAll() {
      await database.query({
        text: "UPDATE runtime.conversations SET lease_until = now() WHERE run_id IS NOT NULL AND holder = $1 AND lease_until > now()",
        values: [holder],
      });
    },
  };
}

function errorColumns(outcome: StoredOutcome): (string | null)[] {
  if (outcome.kind !== "failed") return [null, null, null, null];
  const { message, code, errorId = null, detail = null } = outcome;
  return [message, code, errorId, detail];
}
