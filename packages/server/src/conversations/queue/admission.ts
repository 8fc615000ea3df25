import type { JsonObject } from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";
import type { ClientToolJson, PartJson } from "@khala/contracts/conversation/v1";
import type { Caller } from "../../access/viewer.ts";
import type { Database } from "../../database/database.ts";
import type { BusyPolicy, Conversation, ConversationRef } from "../conversation.ts";
import { type ForkRequest, type PlacedContent, resolveFork } from "../messages/fork.ts";
import { insertQuestion, type Question, type StoredQuestion } from "../messages/question.ts";
import { shortLine } from "../runs/outcome.ts";

type Tx = Pick<Database, "query">;

/** A message that starts a run. */
export interface NewRun extends ForkRequest {
  readonly caller: Caller;
  readonly convId: string;
  readonly runId: string;
  readonly message: string;
  readonly messageId: string;
  /** When it is more than a text. */
  readonly parts?: readonly PartJson[] | undefined;
  readonly params?: JsonObject | undefined;
  readonly tools?: readonly ClientToolJson[] | undefined;
  readonly key: string | undefined;
  /** The hash of the content, which a repeated key must have too. */
  readonly contentHash: string;
  readonly policy: BusyPolicy;
  /** The conversation and the head of its log: a queued run starts after it. */
  readonly opened: { readonly generation: bigint; readonly cursor: string } | undefined;
  /** Stores the messages that the active run has begun: it does so only at intervals, and one of them may be named. */
  readonly storeBegun: (tx: Tx, active: ConversationRef & { readonly runId: string }) => Promise<void>;
  /** Takes a place for the run on this server; throws when there is none. */
  readonly reserve: () => void;
  readonly trace: string | undefined;
}

/** A run that this server has claimed, with its fencing token. */
export interface ClaimedRun extends ConversationRef, Question, StoredQuestion {
  /** The conversation's owner. */
  readonly subject: string;
  /** The parts of the message, when it is more than a text, and the settings of the turn. */
  readonly parts: readonly PartJson[] | null;
  readonly params: JsonObject | null;
  /** Tools that the client executes. */
  readonly tools: readonly ClientToolJson[] | null;
  readonly fence: bigint;
  /** W3C traceparent of the request. */
  readonly trace: string | null;
  /** Whether it was queued. */
  readonly dequeued?: boolean;
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
      /** Whether the interrupted run waits for a person: no server stops it by itself. */
      readonly wakes?: boolean;
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
      /** When to look again, if the run is about to end: it was stopped, or its server may be lost. */
      readonly endsInMs: number | undefined;
    }
  /** The active run's lease has expired. */
  | { readonly kind: "lost" }
  /** No run is active, but one is queued. */
  | { readonly kind: "waiting" }
  /** Another branch was chosen, and its server was lost before it notified the sockets. */
  | { readonly kind: "unannounced"; readonly conversation: ConversationRef }
  /** The conversation was deleted and created again after its log was opened. */
  | { readonly kind: "replaced" };

export interface AdmissionOptions {
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

/** Decides about a message. The caller holds the lock on the conversation's row. */
export async function admit(
  tx: Tx,
  run: NewRun,
  conversation: Conversation,
  options: AdmissionOptions,
): Promise<Admission> {
  const { caller, convId, key, policy, opened } = run;
  const { run: busyWith, alive, queued } = conversation;
  if (opened && opened.generation !== conversation.generation) return { kind: "replaced" };
  if (conversation.unannounced) return { kind: "unannounced", conversation };
  const known = key === undefined ? undefined : await runByKey(tx, caller.org, convId, key);
  if (known && known.contentHash !== run.contentHash) throw keyConflict();
  // The content of a failed run may try again. A stopped one was stopped on purpose.
  if (known && known.status !== "failed") return { kind: "known", ...known };
  if (busyWith && alive === false) return { kind: "lost" };
  if (!busyWith && queued > 0) return { kind: "waiting" };
  const place = async (): Promise<PlacedContent> => {
    if (busyWith && run.regenerate !== undefined)
      await run.storeBegun(tx, { ...conversation, runId: busyWith });
    const content = known ? { ...run, messageId: known.messageId } : run;
    return resolveFork(tx, conversation, run, content, options.newId);
  };
  if (!busyWith) {
    const admitted = { ...run, ...(await place()) };
    if (known) await releaseKey(tx, caller.org, known.runId);
    return { kind: "claimed", run: await claimNew(tx, admitted, conversation, options) };
  }
  if (policy === "reject" || !opened) {
    const { leaseLeftMs } = conversation;
    // A live server renews when a third of the lease has passed.
    const isOverdue = leaseLeftMs !== null && leaseLeftMs < options.leaseMs / 2;
    const endsInMs = isOverdue ? leaseLeftMs : (await isStopped(tx, caller.org, busyWith)) ? 0 : undefined;
    return { kind: "busy", runId: busyWith, conversation, endsInMs };
  }
  if (queued >= options.queueLimit) {
    const message = `The conversation's queue is full (${options.queueLimit} messages). Send this message again later.`;
    throw new KhalaError("limit_exceeded", message, { retry_after_ms: 1_000 });
  }
  const { cursor } = opened;
  const admitted = { ...run, ...(await place()) };
  if (known) await releaseKey(tx, caller.org, known.runId);
  await enqueue(tx, admitted, conversation, cursor, policy === "interrupt" ? busyWith : undefined);
  return {
    kind: "queued",
    runId: run.runId,
    messageId: admitted.messageId,
    cursor,
    conversation,
    ...(policy === "interrupt" && { interrupts: busyWith, wakes: alive === null }),
  };
}

/** Whether somebody has stopped this run, which is active. */
async function isStopped(tx: Tx, org: string, runId: string): Promise<boolean> {
  const rows = await tx.query({
    name: "conversation_run_stopped",
    text: `SELECT 1 FROM runtime.conversation_runs
      WHERE org_id = $1 AND run_id = $2 AND stop_requested IS NOT NULL`,
    values: [org, runId],
  });
  return rows.length > 0;
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
    "The idempotency key was already used for another message of this conversation. Use a new key for this message.";
  return new KhalaError("idempotency_conflict", message, { field: "idempotency_key" });
}

/** A message with its place in the tree. */
type PlacedRun = Omit<NewRun, "regenerate" | "edit"> & PlacedContent;

async function claimNew(
  tx: Tx,
  run: PlacedRun,
  { org, convId, generation, logName, owner: subject }: Conversation,
  { holder, leaseMs }: AdmissionOptions,
): Promise<ClaimedRun> {
  run.reserve();
  const { runId, message, messageId, parts = null, params = null, tools = null, trace = null } = run;
  const { regenerate, edit } = run;
  const sender = run.caller.subject;
  const [row] = await tx.query<{ fence: bigint }>({
    name: "conversation_claim_new",
    text: `WITH claimed AS (
        UPDATE runtime.conversations SET fence = fence + 1, run_id = $3, run_status = 'running', holder = $4, updated_at = now(),
          title = coalesce(title, $12), lease_until = clock_timestamp() + $5 * interval '1 ms'
        WHERE org_id = $1 AND conv_id = $2 RETURNING fence
      )
      INSERT INTO runtime.conversation_runs
        (run_id, org_id, conv_id, subject, sender, status, idempotency_key, content_hash, message, message_id, trace, fence,
          parts, params, regenerate, edit, tools, started_at)
      SELECT $3, $1, $2, $6, $7, 'running', $8, $13, $9, $10, $11, fence, $14, $15, $16, $17, $18, now() FROM claimed
      RETURNING fence`,
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
      regenerate,
      edit,
      tools && JSON.stringify(tools),
    ],
  });
  const { fence } = row!;
  const question = { org, convId, runId, messageId, message, parts, sender, regenerate, edit };
  const stored = await insertQuestion(tx, question);
  if (!stored) {
    const text = `The message id ${messageId} belongs to an answer in this conversation. Send another id.`;
    throw new KhalaError("invalid_request", text, { field: "message_id" });
  }
  return { ...question, ...stored, params, tools, generation, logName, subject, trace, fence };
}

/** The names of a message's files, used instead of a missing text. */
function fileNames(parts: readonly PartJson[] | null): string {
  return (parts ?? []).flatMap(({ file }) => file?.name ?? []).join(", ");
}

/**
 * Adds a run to the end of the queue; or behind the interrupts at its front, and requests the stop of the run that it
 * interrupts. Interrupts have negative places, the others positive ones.
 */
async function enqueue(
  tx: Tx,
  {
    runId,
    caller,
    key,
    contentHash,
    message,
    messageId,
    parts,
    params,
    tools,
    trace,
    regenerate,
    edit,
  }: PlacedRun,
  { org, convId, owner }: Conversation,
  cursor: string,
  interrupts: string | undefined,
): Promise<void> {
  await tx.query({
    name: "conversation_enqueue",
    text: `WITH counted AS (
        UPDATE runtime.conversations SET queued = queued + 1, updated_at = now(),
          -- A run that waits for a person has no lease. With one that has ended, a takeover finds and stops it.
          lease_until = CASE WHEN $10::text IS NULL THEN lease_until ELSE coalesce(lease_until, now()) END
        WHERE org_id = $1 AND conv_id = $2
      ), interrupted AS (
        UPDATE runtime.conversation_runs SET stop_requested = coalesce(stop_requested, 'interrupted')
        WHERE org_id = $1 AND run_id = $10
      )
      INSERT INTO runtime.conversation_runs
        (org_id, conv_id, run_id, subject, sender, status, idempotency_key, content_hash, message, message_id, cursor, trace,
          parts, params, regenerate, edit, tools, place)
      SELECT $1, $2, $3, $4, $5, 'queued', $6, $12, $7, $8, $9, $11, $13, $14, $15, $16, $17, CASE WHEN $10::text IS NULL
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
      regenerate,
      edit,
      tools ? JSON.stringify(tools) : null,
    ],
  });
}
