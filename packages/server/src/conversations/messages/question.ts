import type { PartJson } from "@khala/contracts/conversation/v1";
import type { Database } from "../../database/database.ts";
import type { ConversationId } from "../conversation.ts";
import { isoTime, jsonb } from "./message_row.ts";

type Tx = Pick<Database, "query">;

/** The user's message of a run, before it is stored. */
export interface Question extends ConversationId {
  readonly runId: string;
  readonly messageId: string;
  readonly message: string;
  /** Its parts, when it is more than a text. */
  readonly parts?: readonly PartJson[] | null;
  readonly sender: string;
}

/** Where a question stands in its conversation. */
export interface StoredQuestion {
  /** The message before it. */
  readonly parentId: string | null;
  readonly askedAt: string;
}

/** The parts of a question. */
export function partsOf({ message, parts }: Pick<Question, "message" | "parts">): readonly PartJson[] {
  return parts && parts.length > 0 ? parts : [{ text: message }];
}

/**
 * Stores the user's message of a run that is being claimed, at the end of the active branch. A message that is sent again is
 * replaced. Undefined when its id is that of an answer. The caller holds the lock on the conversation's row.
 */
export async function insertQuestion(tx: Tx, question: Question): Promise<StoredQuestion | undefined> {
  const { org, convId, runId, messageId, sender } = question;
  const [row] = await tx.query<StoredQuestion>({
    name: "message_insert_question",
    text: `WITH stored AS (
        INSERT INTO runtime.messages AS m (org_id, conv_id, message_id, parent_id, role, author, run_id, parts, status,
          created_at)
        SELECT $1, $2, $3, c.leaf_id, 'user', $4, $5, $6, 'done', date_trunc('milliseconds', now()) FROM runtime.conversations c
        WHERE c.org_id = $1 AND c.conv_id = $2
        ON CONFLICT (org_id, conv_id, message_id) DO UPDATE SET run_id = $5, author = $4, parts = $6, status = 'done',
          log_epoch = NULL, log_seq = NULL, log_time = NULL, updated_at = now()
        WHERE m.role = 'user' RETURNING m.parent_id, m.created_at
      ), moved AS (
        UPDATE runtime.conversations SET leaf_id = $3
        WHERE org_id = $1 AND conv_id = $2 AND EXISTS (SELECT FROM stored)
      )
      SELECT parent_id AS "parentId", ${isoTime("created_at")} AS "askedAt" FROM stored`,
    values: [org, convId, messageId, sender, runId, jsonb(partsOf(question))],
  });
  return row;
}

/** Removes the message of a run that could not start, so that the same id can be sent again. */
export async function removeQuestion(
  tx: Tx,
  { org, convId, runId }: Pick<Question, "org" | "convId" | "runId">,
): Promise<void> {
  await tx.query({
    name: "message_remove_question",
    text: `WITH gone AS (
        DELETE FROM runtime.messages m WHERE m.org_id = $1 AND m.run_id = $3 AND m.log_epoch IS NULL
          AND (SELECT 1 FROM runtime.messages n
            WHERE n.org_id = $1 AND n.conv_id = $2 AND n.parent_id = m.message_id LIMIT 1) IS NULL
        RETURNING m.message_id, m.parent_id
      )
      UPDATE runtime.conversations c SET leaf_id = gone.parent_id FROM gone
      WHERE c.org_id = $1 AND c.conv_id = $2 AND c.leaf_id = gone.message_id`,
    values: [org, convId, runId],
  });
}
