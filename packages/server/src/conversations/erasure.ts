import { SCOPES } from "@khala/contracts";
import type { Caller } from "../access/viewer.ts";
import type { Database } from "../database/database.ts";
import type { ConversationRef } from "./conversation.ts";
import type { Files } from "./files/files.ts";
import type { Log } from "./log/log.ts";
import type { OwnedConversation } from "./people/participants.ts";

/** A subject of an org, and whether to count only. */
export interface Erasure {
  readonly org: string;
  readonly subject: string;
  /** Conversations up to this id are done. */
  readonly after: string;
  readonly dryRun: boolean;
  /** Erases what the event log has of runs. May be called again for the same ones. */
  readonly eraseRuns: (runIds: readonly string[]) => Promise<unknown>;
}

/** The data a step found and, except in a dry run, erased. */
export interface ErasedConversations {
  readonly counts: Readonly<Record<string, number>>;
  /** Where to continue; undefined when nothing is left. */
  readonly next: string | undefined;
}

export interface ErasureDeps {
  readonly database: Database;
  readonly log: Log;
  readonly files: Files;
  readonly remove: (caller: Caller, convId: string) => Promise<void>;
  readonly stopRun: (caller: Caller, convId: string, runId: string) => Promise<unknown>;
  readonly removeParticipant: (conversation: OwnedConversation, subject: string) => Promise<unknown>;
  /** The conversation's readers and engine are of before the erasure. */
  readonly erased: (conversation: ConversationRef) => void;
}

/** The conversations that a step reads, and those that it erases data from. */
const SEEN = 500;
const ERASED = 20;
/** Runs of a conversation per call of `eraseRuns`. */
const RUNS = 500;

/** The subject's messages `m`, the answers to them, and those that it had a word in: an output of its client, or a denial. */
const OF_SUBJECT = `(m.author = $2 OR m.role = 'assistant' AND (
  m.run_id IN (SELECT r.run_id FROM runtime.conversation_runs r
    WHERE r.org_id = $1 AND r.conv_id = m.conv_id AND r.sender = $2)
  OR m.run_id IN (SELECT w.run_id FROM runtime.awaited_calls w
    WHERE w.org_id = $1 AND w.conv_id = m.conv_id AND w.decided_by = $2 AND w.state IN ('answered', 'denied'))
  OR m.parent_id IN (SELECT q.message_id FROM runtime.messages q
    WHERE q.org_id = $1 AND q.conv_id = m.conv_id AND q.author = $2)))`;

interface Found extends OwnedConversation {
  readonly part: boolean;
}

/** Erases a batch of the subject's conversations, and of its part in those of others, or counts them. */
export async function eraseConversations(deps: ErasureDeps, erasure: Erasure): Promise<ErasedConversations> {
  const { org, subject, after, dryRun } = erasure;
  const seen = await deps.database.query<Found>({
    name: "erase_find_conversations",
    text: `SELECT c.org_id AS org, c.conv_id AS "convId", c.generation, c.log_name AS "logName", c.owner,
        EXISTS (SELECT FROM runtime.messages m WHERE m.org_id = $1 AND m.conv_id = c.conv_id AND m.author = $2)
        OR EXISTS (SELECT FROM runtime.files f WHERE f.org_id = $1 AND f.conv_id = c.conv_id AND f.author = $2)
        OR EXISTS (SELECT FROM runtime.participants p WHERE p.org_id = $1 AND p.conv_id = c.conv_id AND p.subject = $2)
        OR EXISTS (SELECT FROM runtime.conversation_runs r
          WHERE r.org_id = $1 AND r.conv_id = c.conv_id AND r.sender = $2)
        OR EXISTS (SELECT FROM runtime.awaited_calls w
          WHERE w.org_id = $1 AND w.conv_id = c.conv_id AND w.decided_by = $2) AS part
      FROM runtime.conversations c WHERE c.org_id = $1 AND c.conv_id > $3 AND c.removed_at IS NULL
      ORDER BY c.conv_id LIMIT $4`,
    values: [org, subject, after, SEEN],
  });
  const all = seen.filter(({ owner, part }) => owner === subject || part);
  const batch = all.slice(0, ERASED);
  const whole = seen.length === SEEN ? seen.at(-1)!.convId : undefined;
  const next = batch.length < all.length ? batch.at(-1)!.convId : whole;
  const own = batch.filter(({ owner }) => owner === subject);
  const others = batch.filter(({ owner }) => owner !== subject);
  const counts = { conversations: own.length, messages: 0, files: 0, logs: 0, participations: 0, busy: 0 };
  if (dryRun) return { counts: { ...counts, ...(await countPart(deps.database, erasure, others)) }, next };
  // With its log on either backend, its messages and its files.
  for (const { convId } of own) await deps.remove(callerOf(org, subject), convId);
  for (const conversation of others) {
    const done = await erasePart(deps, conversation, erasure);
    for (const [what, count] of Object.entries(done)) counts[what as keyof typeof done] += count;
  }
  return { counts, next };
}

const callerOf = (org: string, subject: string): Caller => ({ org, subject, scopes: new Set([SCOPES.chat]) });

async function countPart(
  database: Database,
  { org, subject }: Erasure,
  conversations: readonly Found[],
): Promise<Record<string, number>> {
  const [row] = await database.query<Record<string, number>>({
    name: "erase_count_part",
    text: `SELECT
      (SELECT count(*) FROM runtime.messages m WHERE m.org_id = $1 AND m.conv_id = ANY($3::text[]) AND ${OF_SUBJECT})::int AS messages,
      (SELECT count(*) FROM runtime.files f
       WHERE f.org_id = $1 AND f.conv_id = ANY($3::text[]) AND (f.author = $2 OR ${MADE_FOR_SUBJECT}))::int AS files,
      (SELECT count(*) FROM runtime.participants p
       WHERE p.org_id = $1 AND p.conv_id = ANY($3::text[]) AND p.subject = $2)::int AS participations`,
    values: [org, subject, conversations.map(({ convId }) => convId)],
  });
  return { ...row!, logs: conversations.length };
}

/** Erases the subject's data from another owner's conversation. */
async function erasePart(deps: ErasureDeps, conversation: Found, { subject, eraseRuns }: Erasure) {
  const { org, convId, owner } = conversation;
  const { database, log, files } = deps;
  const name = [org, subject, convId];
  const runs = await database.query<{ runId: string; open: boolean }>({
    name: "erase_find_runs_of",
    text: `SELECT run_id AS "runId", ended_at IS NULL AS open FROM runtime.conversation_runs
      WHERE org_id = $1 AND sender = $2 AND conv_id = $3`,
    values: name,
  });
  for (const { runId, open } of runs) if (open) await deps.stopRun(callerOf(org, owner), convId, runId);
  const [role] = await database.query({
    name: "erase_find_participant",
    text: "SELECT 1 FROM runtime.participants WHERE org_id = $1 AND subject = $2 AND conv_id = $3",
    values: name,
  });
  // Its sockets close, and its presence ends.
  if (role) await deps.removeParticipant(conversation, subject);
  const participations = role ? 1 : 0;
  const messages = await database.interactive(async (tx) => {
    const [row] = await tx.query<{ busy: boolean }>({
      name: "erase_lock_conversation",
      text: `SELECT run_id IS NOT NULL OR queued > 0 AS busy FROM runtime.conversations
        WHERE org_id = $1 AND conv_id = $2 AND generation = $3 AND removed_at IS NULL FOR UPDATE`,
      values: [org, convId, conversation.generation],
    });
    if (!row) return 0;
    // A run under way writes to the log and to its messages.
    if (row.busy) return undefined;
    for (let at = 0; at < runs.length; at += RUNS)
      await eraseRuns(runs.slice(at, at + RUNS).map(({ runId }) => runId));
    const erased = await erase(tx, name);
    // New readers take the messages from the database, as after the log's expiry. The lock keeps writers out.
    await log.delete(conversation.logName, conversation.generation);
    return erased;
  });
  if (messages === undefined) return { messages: 0, files: 0, logs: 0, participations, busy: 1 };
  const deleted = await files.eraseOf(org, subject, convId);
  deps.erased(conversation);
  return { messages, files: deleted, logs: 1, participations, busy: 0 };
}

/** Files that nobody uploaded, and that only messages named in OF_SUBJECT refer to. The same bytes are one file of a conversation. */
const MADE_FOR_SUBJECT = `f.author IS NULL AND f.file_id IN (
  SELECT named.file_id FROM (
    SELECT coalesce(${OF_SUBJECT}, false) AS of_subject, (regexp_matches(m.parts::text, '/files/([0-9a-f-]+)', 'g'))[1] AS file_id
    FROM runtime.messages m WHERE m.org_id = $1 AND m.conv_id = f.conv_id
  ) named GROUP BY named.file_id HAVING bool_and(named.of_subject))`;

/** Empties messages, runs and tool calls; returns the number of messages. */
async function erase(tx: Pick<Database, "query">, name: readonly string[]): Promise<number> {
  // They become the subject's, so that they are deleted with its uploads, also after a crash.
  await tx.query({
    name: "erase_adopt_files",
    text: `UPDATE runtime.files f SET author = $2 WHERE f.org_id = $1 AND f.conv_id = $3 AND ${MADE_FOR_SUBJECT}`,
    values: name,
  });
  await tx.query({
    name: "erase_title",
    text: `UPDATE runtime.conversations c SET title = NULL WHERE c.org_id = $1 AND c.conv_id = $3 AND EXISTS (
        SELECT FROM runtime.messages m
        WHERE m.org_id = $1 AND m.conv_id = $3 AND m.parent_id IS NULL AND m.author = $2)`,
    values: name,
  });
  const messages = await tx.query({
    name: "erase_messages",
    text: `UPDATE runtime.messages m SET parts = '[]', metadata = NULL, words = NULL, updated_at = now(),
        author = CASE WHEN m.author = $2 THEN NULL ELSE m.author END
      WHERE m.org_id = $1 AND m.conv_id = $3 AND ${OF_SUBJECT} RETURNING 1`,
    values: name,
  });
  // Its name and its reasons in the answers that it approved.
  await tx.query({
    name: "erase_decisions",
    text: `UPDATE runtime.messages m SET parts = (
        SELECT coalesce(jsonb_agg(CASE WHEN p -> 'tool' -> 'decision' ->> 'decided_by' = $2
            THEN p #- '{tool,decision,decided_by}' #- '{tool,decision,reason}' ELSE p END ORDER BY n), '[]')
        FROM jsonb_array_elements(m.parts) WITH ORDINALITY AS parts(p, n))
      WHERE m.org_id = $1 AND m.conv_id = $3 AND m.message_id IN (
        SELECT w.message_id FROM runtime.awaited_calls w
        WHERE w.org_id = $1 AND w.conv_id = $3 AND w.decided_by = $2)`,
    values: name,
  });
  await tx.query({
    name: "erase_inputs",
    text: `UPDATE runtime.awaited_calls w SET input = NULL WHERE w.org_id = $1 AND w.conv_id = $3 AND w.run_id IN (
        SELECT r.run_id FROM runtime.conversation_runs r
        WHERE r.org_id = $1 AND r.conv_id = $3 AND r.sender = $2)`,
    values: name,
  });
  await tx.query({
    name: "erase_deciders",
    text: `UPDATE runtime.awaited_calls SET decided_by = NULL, content_hash = NULL
      WHERE org_id = $1 AND conv_id = $3 AND decided_by = $2`,
    values: name,
  });
  await tx.query({
    name: "erase_runs",
    text: `UPDATE runtime.conversation_runs SET sender = '', message = NULL, parts = NULL, params = NULL, tools = NULL,
        idempotency_key = NULL, content_hash = NULL, error = NULL, error_detail = NULL, trace = NULL
      WHERE org_id = $1 AND sender = $2 AND conv_id = $3`,
    values: name,
  });
  return messages.length;
}
