import type { JsonObject } from "@bufbuild/protobuf";
import { KhalaError, topicForConv } from "@khala/contracts";
import type { PartJson, QueuedMessageJson, RunJson } from "@khala/contracts/conversation/v1";
import { may, notFound } from "../access/access.ts";
import type { Action, ParticipantRole } from "../access/actions.ts";
import type { Caller } from "../access/viewer.ts";
import type { Database } from "../database/database.ts";
import type { ConversationRef } from "./conversation.ts";
import { isoTime } from "./messages/message_row.ts";
import { insertQuestion } from "./messages/question.ts";
import type { BusyPolicy } from "./plane.ts";
import { QUEUED } from "./queue/queue.ts";
import { shortLine } from "./runs/outcome.ts";

type Tx = Pick<Database, "query">;

/** A run that this server has claimed, with its fencing token. */
export interface ClaimedRun extends ConversationRef {
  readonly runId: string;
  /** The conversation's owner. */
  readonly subject: string;
  /** Who sent the message. */
  readonly sender: string;
  readonly message: string;
  readonly messageId: string;
  /** The message before the user's, and when the user's was stored. */
  readonly parentId: string | null;
  readonly askedAt: string;
  /** The parts of the message, when it is more than a text, and the settings of the turn. */
  readonly parts: readonly PartJson[] | null;
  readonly params: JsonObject | null;
  readonly fence: bigint;
  /** W3C traceparent of the request. */
  readonly trace: string | null;
  /** Whether it was queued. */
  readonly dequeued?: boolean;
}

/** A message that starts a run. */
export interface NewRun {
  readonly caller: Caller;
  readonly convId: string;
  readonly runId: string;
  readonly message: string;
  readonly messageId: string;
  /** When it is more than a text. */
  readonly parts?: readonly PartJson[] | undefined;
  readonly params?: JsonObject | undefined;
  readonly key: string | undefined;
  /** The hash of the content, which a repeated key must have too. */
  readonly contentHash: string;
  readonly policy: BusyPolicy;
  /** The conversation and the head of its log: a queued run starts after it. */
  readonly opened: { readonly generation: bigint; readonly cursor: string } | undefined;
  /** Takes a place for the run on this server; throws when there is none. */
  readonly reserve: () => void;
  readonly trace: string | undefined;
}

/** The decision about a message. */
export type Admission =
  | { readonly kind: "claimed"; readonly run: ClaimedRun }
  | {
      readonly kind: "queued";
      readonly runId: string;
      readonly messageId: string;
      readonly cursor: string;
      readonly conversation: ConversationRef;
      readonly interrupts?: string;
    }
  /** A repeated idempotency key; without a cursor the run is not in the log yet. */
  | {
      readonly kind: "known";
      readonly runId: string;
      readonly messageId: string;
      readonly cursor: string | null;
    }
  /** The policy is to reject, and a run is active. */
  | {
      readonly kind: "busy";
      readonly runId: string;
      readonly conversation: ConversationRef;
      /** When the lease ends, if its renewal is overdue: the run's server may be lost. */
      readonly overdueMs: number | undefined;
    }
  /** The active run's lease has expired. */
  | { readonly kind: "lost" }
  /** No run is active, but one is queued. */
  | { readonly kind: "waiting" }
  /** The conversation was deleted and created again after its log was opened. */
  | { readonly kind: "replaced" };

/** A conversation's row. */
export interface Conversation extends ConversationRef {
  readonly owner: string;
  /** The caller's role, if it takes part without being the owner. */
  readonly role: ParticipantRole | null;
  readonly run: string | null;
  readonly alive: boolean | null;
  /** The milliseconds until the lease of the active run ends. */
  readonly leaseLeftMs: number | null;
  readonly queued: number;
  readonly removed: boolean;
}

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

/** What runs in a conversation, and what waits. */
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

export interface StoreOptions {
  /** This server's id. */
  readonly holder: string;
  readonly leaseMs: number;
  readonly queueLimit: number;
  readonly newId: () => string;
}

/** The length of a conversation's title, taken from its first message. */
const TITLE_LENGTH = 80;
/** The place before the first interrupt. Between it and zero there is room for all that a queue ever holds. */
const FIRST_INTERRUPT = -(2 ** 40);
const CONVERSATION = `c.org_id AS org, c.conv_id AS "convId", c.generation, c.log_name AS "logName", c.owner, c.run_id AS run,
  c.lease_until > clock_timestamp() AS alive,
  (extract(epoch FROM c.lease_until - clock_timestamp()) * 1000)::float8 AS "leaseLeftMs", c.queued, c.removed_at IS NOT NULL AS removed`;
const RUN = `r.run_id, r.status, ${isoTime("r.created_at")} AS created_at, r.error, r.error_code, r.error_id`;

/** A run as it is read. */
type RunRow = Omit<RunJson, "error"> & {
  readonly error: string | null;
  readonly error_code: string | null;
  readonly error_id: string | null;
};

/** A run for its readers. */
export function runJson({ error, error_code, error_id, ...run }: RunRow): RunJson {
  if (run.status !== "failed") return run;
  const why = { code: error_code ?? "engine_failed", message: error ?? "", ...(error_id && { error_id }) };
  return { ...run, error: why };
}

/** Opens the store. */
export function openStore(database: Database, options: StoreOptions): Store {
  return {
    admit: (run) => database.interactive((tx) => admit(tx, run, options)),

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
            AND ${runId === undefined ? "r.run_id = c.run_id" : "r.run_id = $5 AND r.conv_id = c.conv_id AND r.status IN ('queued', 'running')"}
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
  { newId }: StoreOptions,
  lock = false,
): Promise<Conversation> {
  let conversation = await find(tx, caller, convId, lock);
  // Another org may have the first name, and somebody else may create the same conversation at the same time.
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

async function admit(tx: Tx, run: NewRun, options: StoreOptions): Promise<Admission> {
  const { caller, convId, key, policy, opened } = run;
  const conversation = await findOrCreate(tx, caller, "conversation.write", convId, options, true);
  const { run: busyWith, alive, queued } = conversation;
  if (opened && opened.generation !== conversation.generation) return { kind: "replaced" };
  const known = key === undefined ? undefined : await runByKey(tx, caller.org, convId, key);
  if (known && known.contentHash !== run.contentHash) throw keyConflict();
  // The content of a failed run may try again. A stopped one was stopped on purpose.
  if (known && known.status !== "failed") return { kind: "known", ...known };
  if (busyWith && !alive) return { kind: "lost" };
  if (!busyWith && queued > 0) return { kind: "waiting" };
  const admitted = known ? { ...run, messageId: known.messageId } : run;
  if (!busyWith) {
    if (known) await releaseKey(tx, caller.org, known.runId);
    return { kind: "claimed", run: await claimNew(tx, admitted, conversation, options) };
  }
  if (policy === "reject" || !opened) {
    const { leaseLeftMs } = conversation;
    // A live server renews when a third of the lease has passed.
    const overdueMs = leaseLeftMs !== null && leaseLeftMs < options.leaseMs / 2 ? leaseLeftMs : undefined;
    return { kind: "busy", runId: busyWith, conversation, overdueMs };
  }
  if (queued >= options.queueLimit) {
    const message = `The conversation's queue is full (${options.queueLimit} messages). Send this message again later.`;
    throw new KhalaError("limit_exceeded", message, { retry_after_ms: 1_000 });
  }
  const { cursor } = opened;
  if (known) await releaseKey(tx, caller.org, known.runId);
  await enqueue(tx, admitted, conversation, cursor, policy === "interrupt" ? busyWith : undefined);
  return {
    kind: "queued",
    runId: run.runId,
    messageId: admitted.messageId,
    cursor,
    conversation,
    ...(policy === "interrupt" && { interrupts: busyWith }),
  };
}

interface KnownRun {
  readonly runId: string;
  readonly messageId: string;
  readonly status: string;
  readonly contentHash: string | null;
  readonly cursor: string | null;
}

/** The run that an idempotency key has started. */
async function runByKey(tx: Tx, org: string, convId: string, key: string): Promise<KnownRun | undefined> {
  const [known] = await tx.query<KnownRun>({
    name: "conversation_run_by_key",
    text: `SELECT run_id AS "runId", message_id AS "messageId", status, content_hash AS "contentHash", cursor
      FROM runtime.conversation_runs
      WHERE conv_id || ' ' || idempotency_key = $2 AND org_id = $1 AND idempotency_key IS NOT NULL`,
    values: [org, `${convId} ${key}`],
  });
  return known;
}

/** Frees the key of a failed run for the run that tries again. */
async function releaseKey(tx: Tx, org: string, runId: string): Promise<void> {
  await tx.query({
    name: "conversation_release_key",
    text: "UPDATE runtime.conversation_runs SET idempotency_key = NULL WHERE org_id = $1 AND run_id = $2",
    values: [org, runId],
  });
}

function keyConflict(): KhalaError {
  const message =
    "The idempotency key was used for another message of this conversation. Send this one with a key of its own.";
  return new KhalaError("idempotency_conflict", message, { field: "idempotency_key" });
}

async function claimNew(
  tx: Tx,
  run: NewRun,
  { org, convId, generation, logName, owner: subject }: Conversation,
  { holder, leaseMs }: StoreOptions,
): Promise<ClaimedRun> {
  run.reserve();
  const { runId, message, messageId, parts = null, params = null, trace = null } = run;
  const sender = run.caller.subject;
  const [row] = await tx.query<{ fence: bigint }>({
    name: "conversation_claim_new",
    text: `WITH claimed AS (
        UPDATE runtime.conversations SET fence = fence + 1, run_id = $3, holder = $4, updated_at = now(),
          title = coalesce(title, $12), lease_until = clock_timestamp() + $5 * interval '1 ms'
        WHERE org_id = $1 AND conv_id = $2 RETURNING fence
      )
      INSERT INTO runtime.conversation_runs
        (run_id, org_id, conv_id, subject, sender, status, idempotency_key, content_hash, message, message_id, trace, fence,
          parts, params, started_at)
      SELECT $3, $1, $2, $6, $7, 'running', $8, $13, $9, $10, $11, fence, $14, $15, now() FROM claimed RETURNING fence`,
    values: [
      org,
      convId,
      runId,
      holder,
      leaseMs,
      subject,
      sender,
      run.key ?? null,
      message,
      messageId,
      trace,
      shortLine(message.trim() || fileNames(parts), TITLE_LENGTH),
      run.contentHash,
      parts && JSON.stringify(parts),
      params && JSON.stringify(params),
    ],
  });
  const { fence } = row!;
  const question = { org, convId, runId, messageId, message, parts, sender };
  const stored = await insertQuestion(tx, question);
  if (!stored) {
    const text = `The message id ${messageId} is that of an answer in this conversation. Send another one.`;
    throw new KhalaError("invalid_request", text, { field: "message_id" });
  }
  return { ...question, ...stored, params, generation, logName, subject, trace, fence };
}

/** What stands for a message without a text. */
function fileNames(parts: readonly PartJson[] | null): string {
  return (parts ?? []).flatMap(({ file }) => file?.name ?? []).join(", ");
}

/**
 * Adds a run to the end of the queue; or behind the interrupts at its front, and requests the stop of the run that it
 * interrupts. Interrupts have negative places, the others positive ones.
 */
async function enqueue(
  tx: Tx,
  { runId, caller, key, contentHash, message, messageId, parts, params, trace }: NewRun,
  { org, convId, owner }: Conversation,
  cursor: string,
  interrupts: string | undefined,
): Promise<void> {
  await tx.query({
    name: "conversation_enqueue",
    text: `WITH counted AS (
        UPDATE runtime.conversations SET queued = queued + 1, updated_at = now() WHERE org_id = $1 AND conv_id = $2
      ), interrupted AS (
        UPDATE runtime.conversation_runs SET stop_requested = coalesce(stop_requested, 'interrupted')
        WHERE org_id = $1 AND run_id = $10
      )
      INSERT INTO runtime.conversation_runs
        (org_id, conv_id, run_id, subject, sender, status, idempotency_key, content_hash, message, message_id, cursor, trace,
          parts, params, place)
      SELECT $1, $2, $3, $4, $5, 'queued', $6, $12, $7, $8, $9, $11, $13, $14, CASE WHEN $10::text IS NULL
        THEN greatest(coalesce(max(place), 0), 0) + 1
        ELSE coalesce(max(place) FILTER (WHERE place < 0), ${FIRST_INTERRUPT}) + 1
        END
      FROM runtime.conversation_runs WHERE org_id = $1 AND conv_id = $2 AND status = 'queued'`,
    values: [
      org,
      convId,
      runId,
      owner,
      caller.subject,
      key ?? null,
      message,
      messageId,
      cursor,
      interrupts ?? null,
      trace ?? null,
      contentHash,
      parts ? JSON.stringify(parts) : null,
      params ? JSON.stringify(params) : null,
    ],
  });
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
  const runs = await tx.query<RunningRun>({
    text: `DELETE FROM runtime.conversation_runs WHERE org_id = $1 AND conv_id = $2
      RETURNING run_id AS "runId", org_id AS org, subject`,
    values: [org, convId],
  });
  return { fence: row.fence, run: runs.find(({ runId }) => runId === row.run) };
}
