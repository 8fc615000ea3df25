import { KhalaError } from "@khala/contracts";
import type { RunJson } from "@khala/contracts/conversation/v1";
import type { Database } from "../database/database.ts";
import type { BusyPolicy, Caller } from "./plane.ts";
import { shortLine } from "./runs/outcome.ts";

type Tx = Pick<Database, "query">;

/** A run that this server has claimed, with its fencing token. */
export interface ClaimedRun {
  readonly convId: string;
  readonly runId: string;
  readonly org: string;
  readonly subject: string;
  readonly message: string;
  readonly messageId: string;
  readonly fence: bigint;
  /** W3C traceparent of the request. */
  readonly trace: string | null;
}

/** A message that starts a run. */
export interface NewRun extends Caller {
  readonly convId: string;
  readonly runId: string;
  readonly message: string;
  readonly messageId: string;
  readonly key: string | undefined;
  readonly policy: BusyPolicy;
  /** The log's head: a queued run starts after it. */
  readonly cursor: string | undefined;
  /** False when this server has reached its limit of runs. */
  readonly hasCapacity: boolean;
  readonly trace: string | undefined;
}

/** The decision about a message. */
export type Admission =
  | { readonly kind: "claimed"; readonly run: ClaimedRun }
  | { readonly kind: "queued"; readonly runId: string; readonly cursor: string; readonly interrupts?: string }
  /** A repeated idempotency key; without a cursor the run is not in the log yet. */
  | { readonly kind: "known"; readonly runId: string; readonly cursor: string | null }
  /** The active run's lease has expired. */
  | { readonly kind: "lost" }
  /** No run is active, but one is queued. */
  | { readonly kind: "waiting" };

/** A conversation's row. */
export interface Conversation {
  readonly org: string;
  readonly owner: string;
  readonly run: string | null;
  readonly alive: boolean | null;
  readonly queued: number;
  readonly removed: boolean;
}

/** The conversations and their runs. Leases are in leases.ts. */
export interface Store {
  /** Decides about a message in one short transaction. */
  admit(run: NewRun): Promise<Admission>;
  /** Creates the conversation if it does not exist; not_found when it has another owner. */
  ensure(caller: Caller, convId: string): Promise<void>;
  /** Fails with not_found unless the caller owns the conversation. */
  check(caller: Caller, convId: string): Promise<Conversation>;
  /** The active run. */
  running(convId: string): Promise<RunJson | null>;
  /** The active run, or else the newest. */
  newest(convId: string): Promise<RunJson | null>;
  /** Requests a stop of the active run; returns that run. */
  requestStop(convId: string, reason: string): Promise<{ runId: string; alive: boolean } | undefined>;
  /** Begins a removal: the conversation becomes unusable. Returns the active run, and the fence for `endRemoval`. */
  beginRemoval(convId: string): Promise<{ fence: bigint; run: RunningRun | undefined } | undefined>;
  /** Ends a removal after the log is deleted. The janitor ends unfinished ones. */
  endRemoval(convId: string, fence: bigint): Promise<void>;
}

/** A run that was active. */
export interface RunningRun {
  readonly runId: string;
  readonly org: string;
  readonly subject: string;
}

/** The length of a conversation's title, taken from its first message. */
const TITLE_LENGTH = 80;
const RUN = `run_id, status, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at`;

/** Opens the store. `holder` is this server's id. */
export function openStore(
  database: Database,
  options: { holder: string; leaseMs: number; queueLimit: number },
): Store {
  return {
    admit: (run) => database.interactive((tx) => admit(tx, run, options)),

    async ensure(caller, convId) {
      if (isUsable(await find(database, convId), caller, convId)) return;
      await create(database, caller, convId);
      if (!isUsable(await find(database, convId), caller, convId)) throw notFound(convId);
    },

    async check(caller, convId) {
      const conversation = await find(database, convId);
      if (!isUsable(conversation, caller, convId)) throw notFound(convId);
      return conversation!;
    },

    async running(convId) {
      const [run] = await database.query<RunJson>({
        name: "conversation_running",
        text: `SELECT ${RUN} FROM runtime.conversation_runs
          WHERE run_id = (SELECT run_id FROM runtime.conversations WHERE conv_id = $1)`,
        values: [convId],
      });
      return run ?? null;
    },

    async newest(convId) {
      const [run] = await database.query<RunJson>({
        name: "conversation_newest_run",
        text: `SELECT ${RUN} FROM runtime.conversation_runs
          WHERE run_id = coalesce((SELECT run_id FROM runtime.conversations WHERE conv_id = $1),
            (SELECT max(run_id) FROM runtime.conversation_runs WHERE conv_id = $1))`,
        values: [convId],
      });
      return run ?? null;
    },

    async requestStop(convId, reason) {
      const [row] = await database.query<{ run: string; alive: boolean }>({
        name: "conversation_stop",
        text: `UPDATE runtime.conversation_runs r SET stop_requested = coalesce(r.stop_requested, $2)
          FROM runtime.conversations c WHERE c.conv_id = $1 AND r.run_id = c.run_id
          RETURNING r.run_id AS run, c.lease_until > clock_timestamp() AS alive`,
        values: [convId, reason],
      });
      return row && { runId: row.run, alive: row.alive };
    },

    beginRemoval: (convId) => database.interactive((tx) => beginRemoval(tx, convId)),

    async endRemoval(convId, fence) {
      await database.query({
        text: "DELETE FROM runtime.conversations WHERE conv_id = $1 AND fence = $2 AND removed_at IS NOT NULL",
        values: [convId, fence],
      });
    },
  };
}

async function find(tx: Tx, convId: string, lock = false): Promise<Conversation | undefined> {
  const [row] = await tx.query<Conversation>({
    name: lock ? "conversation_lock" : "conversation_find",
    text: `SELECT org_id AS org, owner, run_id AS run, lease_until > clock_timestamp() AS alive, queued,
        removed_at IS NOT NULL AS removed
      FROM runtime.conversations WHERE conv_id = $1 ${lock ? "FOR UPDATE" : ""}`,
    values: [convId],
  });
  return row;
}

async function create(tx: Tx, caller: Caller, convId: string): Promise<void> {
  await tx.query({
    name: "conversation_create",
    text: `INSERT INTO runtime.conversations (conv_id, org_id, owner) VALUES ($1, $2, $3)
      ON CONFLICT (conv_id) DO NOTHING`,
    values: [convId, caller.org, caller.subject],
  });
}

function notFound(convId: string): KhalaError {
  return new KhalaError("not_found", `There is no conversation "${convId}".`);
}

/** Whether it exists. Another owner's conversation is reported as missing. */
function isUsable(conversation: Conversation | undefined, caller: Caller, convId: string): boolean {
  if (!conversation) return false;
  if (conversation.org !== caller.org || conversation.owner !== caller.subject) throw notFound(convId);
  if (conversation.removed) {
    const message = "The conversation is being deleted. Try again in a moment to start a new one.";
    throw new KhalaError("unavailable", message, { retry_after_ms: 500 });
  }
  return true;
}

async function admit(
  tx: Tx,
  run: NewRun,
  options: { holder: string; leaseMs: number; queueLimit: number },
): Promise<Admission> {
  const { convId, key, policy } = run;
  let conversation = await find(tx, convId, true);
  if (!isUsable(conversation, run, convId)) {
    await create(tx, run, convId);
    conversation = await find(tx, convId, true);
    if (!isUsable(conversation, run, convId)) throw notFound(convId);
  }
  const { run: busyWith, alive, queued } = conversation!;
  if (key !== undefined) {
    const [known] = await tx.query<{ runId: string; cursor: string | null }>({
      name: "conversation_run_by_key",
      text: `SELECT run_id AS "runId", cursor FROM runtime.conversation_runs
        WHERE idempotency_key = $1 AND conv_id = $2`,
      values: [key, convId],
    });
    if (known) return { kind: "known", ...known };
  }
  if (busyWith && !alive) return { kind: "lost" };
  if (!busyWith && queued > 0) return { kind: "waiting" };
  if (!busyWith) return { kind: "claimed", run: await claimNew(tx, run, options) };
  if (policy === "reject") {
    const message = `The conversation is busy with run ${busyWith}. Wait for its end, stop it, or send with the policy "queue" or "interrupt".`;
    throw new KhalaError("conversation_busy", message, { retry_after_ms: 1_000 });
  }
  if (queued >= options.queueLimit) {
    const message = `The conversation's queue is full (${options.queueLimit} messages). Send this message again later.`;
    throw new KhalaError("limit_exceeded", message, { retry_after_ms: 1_000 });
  }
  await enqueue(tx, run, policy === "interrupt" ? busyWith : undefined);
  return {
    kind: "queued",
    runId: run.runId,
    cursor: run.cursor!,
    ...(policy === "interrupt" && { interrupts: busyWith }),
  };
}

async function claimNew(
  tx: Tx,
  run: NewRun,
  { holder, leaseMs }: { holder: string; leaseMs: number },
): Promise<ClaimedRun> {
  if (!run.hasCapacity) {
    const message = "This server has reached its limit of runs. Try again in a moment.";
    throw new KhalaError("overloaded", message, { retry_after_ms: 1_000 });
  }
  const { convId, runId, org, subject, message, messageId, trace = null } = run;
  const [row] = await tx.query<{ fence: bigint }>({
    name: "conversation_claim_new",
    text: `WITH claimed AS (
        UPDATE runtime.conversations SET fence = fence + 1, run_id = $2, holder = $3, updated_at = now(),
          title = coalesce(title, $11), lease_until = clock_timestamp() + $4 * interval '1 ms'
        WHERE conv_id = $1 RETURNING fence
      )
      INSERT INTO runtime.conversation_runs
        (run_id, conv_id, org_id, subject, status, idempotency_key, message, message_id, trace, fence, started_at)
      SELECT $2, $1, $5, $6, 'running', $7, $8, $9, $10, fence, now() FROM claimed RETURNING fence`,
    values: [
      convId,
      runId,
      holder,
      leaseMs,
      org,
      subject,
      run.key ?? null,
      message,
      messageId,
      trace,
      shortLine(message.trim(), TITLE_LENGTH),
    ],
  });
  return { convId, runId, org, subject, message, messageId, trace, fence: row!.fence };
}

/** Adds a run to the end of the queue; or to its front, and requests the stop of the run that it interrupts. */
async function enqueue(tx: Tx, run: NewRun, interrupts: string | undefined): Promise<void> {
  const { convId, runId, org, subject, key, message, messageId, cursor, trace } = run;
  await tx.query({
    name: "conversation_enqueue",
    text: `WITH counted AS (
        UPDATE runtime.conversations SET queued = queued + 1, updated_at = now() WHERE conv_id = $1
      ), interrupted AS (
        UPDATE runtime.conversation_runs SET stop_requested = coalesce(stop_requested, 'interrupted')
        WHERE run_id = $9
      )
      INSERT INTO runtime.conversation_runs
        (run_id, conv_id, org_id, subject, status, idempotency_key, message, message_id, cursor, trace, place)
      SELECT $2, $1, $3, $4, 'queued', $5, $6, $7, $8, $10, CASE WHEN $9::text IS NULL
        THEN (SELECT coalesce(max(place), 0) + 1 FROM runtime.conversation_runs WHERE conv_id = $1 AND status = 'queued')
        ELSE (SELECT coalesce(min(place), 0) - 1 FROM runtime.conversation_runs WHERE conv_id = $1 AND status = 'queued')
        END`,
    values: [
      convId,
      runId,
      org,
      subject,
      key ?? null,
      message,
      messageId,
      cursor,
      interrupts ?? null,
      trace ?? null,
    ],
  });
}

async function beginRemoval(tx: Tx, convId: string) {
  const [row] = await tx.query<{ fence: bigint; run: string | null }>({
    text: `WITH old AS (SELECT conv_id, run_id FROM runtime.conversations WHERE conv_id = $1 FOR UPDATE)
      UPDATE runtime.conversations c SET fence = fence + 1, run_id = NULL, holder = NULL, lease_until = NULL,
        queued = 0, removed_at = now()
      FROM old WHERE c.conv_id = old.conv_id RETURNING c.fence, old.run_id AS run`,
    values: [convId],
  });
  if (!row) return undefined;
  const runs = await tx.query<RunningRun>({
    text: `DELETE FROM runtime.conversation_runs WHERE conv_id = $1
      RETURNING run_id AS "runId", org_id AS org, subject`,
    values: [convId],
  });
  return { fence: row.fence, run: runs.find(({ runId }) => runId === row.run) };
}
