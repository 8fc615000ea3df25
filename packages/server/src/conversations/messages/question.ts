import type { EventJson, MessageJson, PartJson } from "@khala/contracts/conversation/v1";
import type { Database } from "../../database/database.ts";
import type { ConversationId } from "../conversation.ts";
import { childrenOf, isoTime, jsonb, wordsOf } from "./message_row.ts";

type Tx = Pick<Database, "query">;

/** The user's message of a run, before it is stored. */
export interface Question extends ConversationId {
  readonly runId: string;
  readonly messageId: string;
  readonly message: string;
  /** Its parts, when it is more than a text. */
  readonly parts?: readonly PartJson[] | null;
  readonly sender: string;
  /** Set when another answer to a stored question is wanted. */
  readonly regenerate?: string | null;
  /** The message that this one is another version of. */
  readonly edit?: string | null;
}

/** The position of a question in its conversation. */
export interface StoredQuestion {
  /** The message before it. */
  readonly parentId: string | null;
  readonly askedAt: string;
  /** The author, who need not be the one who requests another answer. */
  readonly author: string | null;
  /** All messages with the same parent in order; null when it is the only one. */
  readonly siblings: readonly string[] | null;
  /** Earlier answers to it. */
  readonly answers: readonly string[];
  /** Whether the active branch ended elsewhere than at its parent. */
  readonly forks: boolean;
}

/** The parts of a question. */
export function partsOf({
  message,
  parts,
}: {
  readonly message: string;
  readonly parts?: readonly PartJson[] | null | undefined;
}): readonly PartJson[] {
  return parts && parts.length > 0 ? parts : [{ text: message }];
}

/**
 * Stores the user's message of a run that is being claimed: at the end of the active branch, or beside the one that it edits.
 * A message that is sent again is replaced, and a question that is answered again stays as it is. The active branch ends with
 * it. Undefined when its id is that of an answer. The caller holds the lock on the conversation's row.
 */
export async function insertQuestion(tx: Tx, question: Question): Promise<StoredQuestion | undefined> {
  const { org, convId, runId, messageId, sender, regenerate = null, edit = null } = question;
  const [row] = await tx.query<Omit<StoredQuestion, "siblings" | "answers"> & { crowded: boolean }>({
    name: "message_insert_question",
    text: `WITH place AS MATERIALIZED (
        SELECT c.owner, c.leaf_id, CASE WHEN e.message_id IS NULL THEN c.leaf_id ELSE e.parent_id END AS parent_id
        FROM runtime.conversations c
        LEFT JOIN runtime.messages e ON e.org_id = $1 AND e.conv_id = $2 AND e.message_id = $8
        WHERE c.org_id = $1 AND c.conv_id = $2
      ), stored AS (
        INSERT INTO runtime.messages AS m (org_id, conv_id, message_id, parent_id, role, author, run_id, parts, status,
          words, created_at)
        SELECT $1, $2, $3, parent_id, 'user', $4, $5, $6, 'done', ${wordsOf("$1", "place.owner", "$6::jsonb")},
          date_trunc('milliseconds', now()) FROM place
        ON CONFLICT (org_id, conv_id, message_id) DO UPDATE SET run_id = $5, status = 'done',
          author = CASE WHEN $7 THEN m.author ELSE $4 END, words = CASE WHEN $7 THEN m.words ELSE excluded.words END, parts = CASE WHEN $7 THEN m.parts ELSE $6 END,
          log_epoch = NULL, log_seq = NULL, log_time = NULL, updated_at = now()
        WHERE m.role = 'user' RETURNING m.parent_id, m.created_at, m.author
      ), moved AS (
        UPDATE runtime.conversations SET leaf_id = $3
        WHERE org_id = $1 AND conv_id = $2 AND EXISTS (SELECT FROM stored)
      ), left_behind AS (
        UPDATE runtime.conversation_runs SET former_leaf = place.leaf_id FROM place, stored
        WHERE org_id = $1 AND run_id = $5 AND place.leaf_id IS DISTINCT FROM stored.parent_id
      )
      SELECT s.parent_id AS "parentId", ${isoTime("s.created_at")} AS "askedAt", s.author,
        place.leaf_id IS DISTINCT FROM s.parent_id AS forks,
        (SELECT 1 FROM runtime.messages o WHERE o.org_id = $1 AND o.conv_id = $2
          AND o.parent_id = s.parent_id AND o.message_id <> $3 LIMIT 1) IS NOT NULL AS crowded
      FROM stored s, place`,
    values: [org, convId, messageId, sender, runId, jsonb(partsOf(question)), regenerate !== null, edit],
  });
  if (!row) return undefined;
  const { crowded, ...place } = row;
  if (!place.forks && !crowded) return { ...place, siblings: null, answers: [] };
  const stored = await findQuestion(tx, question);
  return stored && { ...stored, forks: place.forks };
}

/** The position of a run's stored question. The run may have to announce that the branch has changed. */
export async function findQuestion(
  tx: Tx,
  { org, convId, runId, messageId }: Pick<Question, "org" | "convId" | "runId" | "messageId">,
): Promise<StoredQuestion | undefined> {
  const [row] = await tx.query<Omit<StoredQuestion, "forks" | "answers"> & { answers: string[] | null }>({
    name: "message_find_question",
    text: `SELECT m.parent_id AS "parentId", ${isoTime("m.created_at")} AS "askedAt", m.author,
        ${childrenOf("$1", "$2", "m.parent_id")} AS siblings, (
          SELECT array_agg(a.message_id ORDER BY a.inserted_at, a.message_id) FROM runtime.messages a
          WHERE a.org_id = $1 AND a.conv_id = $2 AND a.parent_id = $3 AND a.run_id IS DISTINCT FROM $4
        ) AS answers
      FROM runtime.messages m WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = $3`,
    values: [org, convId, messageId, runId],
  });
  if (!row) return undefined;
  const { siblings, answers } = row;
  return {
    ...row,
    siblings: siblings && siblings.length > 1 ? siblings : null,
    answers: answers ?? [],
    forks: true,
  };
}

/** The log entries of a question: the message, and the change of branch, if there is one. */
export function questionEvents(question: Question & StoredQuestion): EventJson[] {
  const { parentId, forks } = question;
  const message = { message: questionOf(question) };
  return forks ? [{ branch_changed: { parent_id: parentId ?? "" } }, message] : [message];
}

/** The user's message of a run, as an event. */
export function questionOf({
  messageId,
  message,
  parts,
  parentId,
  author,
  askedAt,
  siblings,
  answers,
}: Question & StoredQuestion): MessageJson {
  return {
    message_id: messageId,
    role: "user",
    ...(parts ? { parts: [...parts] } : { text: message }),
    ...(parentId !== null && { parent_id: parentId }),
    ...(author && { author }),
    created_at: askedAt,
    ...(siblings && { siblings: [...siblings] }),
    ...(answers.length > 0 && { replies: [...answers] }),
  };
}

/**
 * Removes the message of a run that could not start, so that the same id can be sent again. The active branch is the one
 * before. A question that was there before the run stays.
 */
export async function removeQuestion(
  tx: Tx,
  { org, convId, runId }: Pick<Question, "org" | "convId" | "runId">,
): Promise<void> {
  await tx.query({
    name: "message_remove_question",
    text: `WITH run AS MATERIALIZED (
        SELECT message_id, former_leaf, regenerate FROM runtime.conversation_runs WHERE org_id = $1 AND run_id = $3
      ), gone AS (
        DELETE FROM runtime.messages m USING run WHERE m.org_id = $1 AND m.run_id = $3 AND m.log_epoch IS NULL
          AND run.regenerate IS NULL AND run.former_leaf IS DISTINCT FROM m.message_id
          AND (SELECT 1 FROM runtime.messages n
            WHERE n.org_id = $1 AND n.conv_id = $2 AND n.parent_id = m.message_id LIMIT 1) IS NULL
        RETURNING m.message_id, m.parent_id
      )
      UPDATE runtime.conversations c SET leaf_id = coalesce(run.former_leaf, gone.parent_id) FROM run LEFT JOIN gone ON true
      WHERE c.org_id = $1 AND c.conv_id = $2 AND c.leaf_id = run.message_id
        AND (run.former_leaf IS NOT NULL OR gone.message_id IS NOT NULL)`,
    values: [org, convId, runId],
  });
}
