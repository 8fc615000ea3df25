import { KhalaError, topicForConv } from "@khala/contracts";
import type { PendingCallJson, QueuedMessageJson, RunJson } from "@khala/contracts/conversation/v1";
import { may, notFound } from "../access/access.ts";
import type { Action } from "../access/actions.ts";
import type { Caller } from "../access/viewer.ts";
import type { Database } from "../database/database.ts";
import type { Conversation, ConversationRef } from "./conversation.ts";
import { isoTime } from "./messages/message_row.ts";
import { type Admission, type AdmissionOptions, admit, type NewRun } from "./queue/admission.ts";
import { QUEUED } from "./queue/queue.ts";
import { WAITS_FOR, withdrawCalls } from "./waiting/awaited_calls.ts";

type Tx = Pick<Database, "query">;

/** The conversations and their runs. Leases are in leases.ts. */
export interface Store {
  /** Decides about a message in one short transaction. */
  admit(run: NewRun): Promise<Admission>;
  /** The conversation, which is created if it does not exist; not_found unless the caller may do the action to it. */
  ensure(caller: Caller, action: Action, convId: string): Promise<Conversation>;
  /** The conversation; not_found unless the caller may do the action to it. */
  check(caller: Caller, action: Action, convId: string): Promise<Conversation>;
  /** The active run and the queue; undefined when the conversation was deleted. */
  current(conversation: ConversationRef): Promise<CurrentRuns | undefined>;
  /** The run of this id; without one, the active run, or else the newest. */
  run(conversation: ConversationRef, runId?: string): Promise<RunJson | null>;
  /** Requests a stop of the active run, if it is this one; returns that run. */
  requestStop(
    conversation: ConversationRef,
    reason: string,
    runId?: string,
  ): Promise<{ runId: string; active: boolean; alive: boolean } | undefined>;
  /** Begins a removal: the conversation becomes unusable. Returns the active run, and the fence for `endRemoval`. */
  beginRemoval(
    conversation: ConversationRef,
  ): Promise<{ fence: bigint; run: RunningRun | undefined } | undefined>;
  /** Ends a removal after the log is deleted. The janitor ends unfinished ones. */
  endRemoval(conversation: ConversationRef, fence: bigint): Promise<void>;
}

/** The active and queued runs of a conversation. */
export interface CurrentRuns {
  readonly run: RunJson | null;
  readonly queued: QueuedMessageJson[];
}

/** A run that was active. */
export interface RunningRun {
  readonly runId: string;
  readonly org: string;
  readonly subject: string;
}

const CONVERSATION = `c.org_id AS org, c.conv_id AS "convId", c.generation, c.log_name AS "logName", c.owner, c.run_id AS run,
  c.lease_until > clock_timestamp() AS alive,
  (extract(epoch FROM c.lease_until - clock_timestamp()) * 1000)::float8 AS "leaseLeftMs", c.queued, c.removed_at IS NOT NULL AS removed,
  c.announce_from IS NOT NULL AS unannounced`;
const RUN = `r.run_id, r.status, ${isoTime("r.created_at")} AS created_at, r.error, r.error_code, r.error_id,
  ${WAITS_FOR} AS waits_for`;

/** A run as it is read. */
type RunRow = Omit<RunJson, "error"> & {
  readonly error: string | null;
  readonly error_code: string | null;
  readonly error_id: string | null;
  readonly waits_for?: PendingCallJson[] | null;
};

/** A run for its readers. */
export function runJson({ error, error_code, error_id, waits_for, ...run }: RunRow): RunJson {
  if (run.status === "waiting" && waits_for) return { ...run, waits_for };
  if (run.status !== "failed") return run;
  const why = { code: error_code ?? "engine_failed", message: error ?? "", ...(error_id && { error_id }) };
  return { ...run, error: why };
}

/** Opens the store. */
export function openStore(database: Database, options: AdmissionOptions): Store {
  return {
    admit: (run) =>
      database.interactive(async (tx) => {
        const { caller, convId } = run;
        const conversation = await findOrCreate(tx, caller, "conversation.write", convId, options, true);
        return admit(tx, run, conversation, options);
      }),

    ensure: (caller, action, convId) => findOrCreate(database, caller, action, convId, options),

    async check(caller, action, convId) {
      const conversation = await find(database, caller, convId);
      if (!conversation) throw notFound("conversation", convId);
      return usable(conversation, caller, action);
    },

    async current({ org, convId, generation }) {
      const [row] = await database.query<RunRow & { queued: QueuedMessageJson[] | null }>({
        name: "conversation_current",
        text: `SELECT ${RUN}, ${QUEUED} AS queued FROM runtime.conversations c
          LEFT JOIN LATERAL (
            SELECT r.* FROM runtime.conversation_runs r WHERE r.run_id = c.run_id AND r.org_id = c.org_id OFFSET 0
          ) r ON true
          WHERE c.org_id = $1 AND c.conv_id = $2 AND c.generation = $3 AND c.removed_at IS NULL`,
        values: [org, convId, generation],
      });
      if (!row) return undefined;
      const { queued, ...run } = row;
      return { run: run.run_id ? runJson(run) : null, queued: queued ?? [] };
    },

    async run({ org, convId, generation }, runId) {
      if (runId !== undefined) {
        const [named] = await database.query<RunRow>({
          name: "conversation_run",
          text: `SELECT ${RUN} FROM runtime.conversation_runs r
            WHERE r.org_id = $1 AND r.run_id = $3 AND r.conv_id = $2`,
          values: [org, convId, runId],
        });
        return named ? runJson(named) : null;
      }
      const [run] = await database.query<RunRow>({
        name: "conversation_newest_run",
        text: `SELECT ${RUN} FROM runtime.conversation_runs r
          WHERE r.org_id = $1 AND r.run_id = (
            SELECT coalesce(c.run_id, (
              SELECT max(n.run_id) FROM runtime.conversation_runs n WHERE n.org_id = $1 AND n.conv_id = $2))
            FROM runtime.conversations c WHERE c.org_id = $1 AND c.conv_id = $2 AND c.generation = $3)`,
        values: [org, convId, generation],
      });
      return run ? runJson(run) : null;
    },

    async requestStop({ org, convId, generation }, reason, runId) {
      const [row] = await database.query<{ runId: string; active: boolean; alive: boolean }>({
        name: runId === undefined ? "conversation_stop" : "conversation_stop_run",
        text: `UPDATE runtime.conversation_runs r SET stop_requested = coalesce(r.stop_requested, $4)
          FROM runtime.conversations c
          WHERE c.org_id = $1 AND c.conv_id = $2 AND c.generation = $3 AND r.org_id = c.org_id
            AND ${runId === undefined ? "r.run_id = c.run_id" : "r.run_id = $5 AND r.conv_id = c.conv_id AND r.status IN ('queued', 'running', 'waiting')"}
          RETURNING r.run_id AS "runId", r.run_id IS NOT DISTINCT FROM c.run_id AS active,
            coalesce(c.lease_until > clock_timestamp(), false) AS alive`,
        values: [org, convId, generation, reason, ...(runId === undefined ? [] : [runId])],
      });
      return row;
    },

    beginRemoval: (conversation) => database.interactive((tx) => beginRemoval(tx, conversation)),

    async endRemoval({ org, convId, generation }, fence) {
      await database.query({
        text: `DELETE FROM runtime.conversations
          WHERE org_id = $1 AND conv_id = $2 AND generation = $3 AND fence = $4 AND removed_at IS NOT NULL`,
        values: [org, convId, generation, fence],
      });
    },
  };
}

async function find(
  tx: Tx,
  { org, subject }: Caller,
  convId: string,
  lock = false,
): Promise<Conversation | undefined> {
  const [row] = await tx.query<Conversation>({
    name: lock ? "conversation_lock" : "conversation_find",
    text: `SELECT ${CONVERSATION}, (
        SELECT p.role FROM runtime.participants p WHERE p.org_id = $1 AND p.conv_id = $2 AND p.subject = $3
      ) AS role
      FROM runtime.conversations c WHERE c.org_id = $1 AND c.conv_id = $2 ${lock ? "FOR UPDATE" : ""}`,
    values: [org, convId, subject],
  });
  return row;
}

async function findOrCreate(
  tx: Tx,
  caller: Caller,
  action: Action,
  convId: string,
  { newId }: AdmissionOptions,
  lock = false,
): Promise<Conversation> {
  let conversation = await find(tx, caller, convId, lock);
  // Another org may have the first name, and another caller may create the same conversation at the same time.
  for (const suffix of ["", `:${newId()}`]) {
    conversation ??= await create(tx, caller, convId, `${topicForConv(convId)}${suffix}`);
    conversation ??= await find(tx, caller, convId, lock);
  }
  if (!conversation) throw notFound("conversation", convId);
  return usable(conversation, caller, action);
}

/** Creates the conversation; undefined when it exists, or another one has this log. */
async function create(
  tx: Tx,
  { org, subject }: Caller,
  convId: string,
  logName: string,
): Promise<Conversation | undefined> {
  const [row] = await tx.query<Conversation>({
    name: "conversation_create",
    text: `INSERT INTO runtime.conversations AS c (org_id, conv_id, log_name, owner) VALUES ($1, $2, $3, $4)
      ON CONFLICT DO NOTHING RETURNING ${CONVERSATION}, NULL AS role`,
    values: [org, convId, logName, subject],
  });
  return row;
}

/** A caller that may read the conversation learns that its role is too low; for all others it does not exist. */
function refusal(conversation: Conversation, caller: Caller): KhalaError {
  if (!may(caller, "conversation.read", conversation)) return notFound("conversation", conversation.convId);
  const message = `Your role in the conversation, ${conversation.role}, does not allow this. Ask its owner.`;
  return new KhalaError("missing_role", message);
}

/** Refuses a conversation that is not the caller's to use, as if it did not exist, and one that is being deleted. */
function usable(conversation: Conversation, caller: Caller, action: Action): Conversation {
  if (!may(caller, action, conversation)) throw refusal(conversation, caller);
  if (conversation.removed) {
    const message = "The conversation is being deleted. Try again in a moment to start a new one.";
    throw new KhalaError("unavailable", message, { retry_after_ms: 500 });
  }
  return conversation;
}

async function beginRemoval(tx: Tx, { org, convId, generation }: ConversationRef) {
  const [row] = await tx.query<{ fence: bigint; run: string | null }>({
    text: `WITH old AS (
        SELECT org_id, conv_id, run_id FROM runtime.conversations
        WHERE org_id = $1 AND conv_id = $2 AND generation = $3 FOR UPDATE
      )
      UPDATE runtime.conversations c SET fence = fence + 1, run_id = NULL, holder = NULL, lease_until = NULL,
        queued = 0, removed_at = now()
      FROM old WHERE c.org_id = old.org_id AND c.conv_id = old.conv_id RETURNING c.fence, old.run_id AS run`,
    values: [org, convId, generation],
  });
  if (!row) return undefined;
  await tx.query(withdrawCalls({ org, convId }));
  const runs = await tx.query<RunningRun>({
    text: `DELETE FROM runtime.conversation_runs WHERE org_id = $1 AND conv_id = $2
      RETURNING run_id AS "runId", org_id AS org, subject`,
    values: [org, convId],
  });
  return { fence: row.fence, run: runs.find(({ runId }) => runId === row.run) };
}
