import { canonicalJson, KhalaError } from "@khala/contracts";
import type { PartJson } from "@khala/contracts/conversation/v1";
import type { Database } from "../../database/database.ts";
import { invalid } from "../../kit/invalid.ts";
import type { ConversationId } from "../conversation.ts";
import { partsOf } from "./question.ts";

type Tx = Pick<Database, "query">;

/** The point where a message leaves the active branch. */
export interface ForkRequest {
  /** Another answer is wanted: to this question, or instead of this answer. */
  readonly regenerate?: string | undefined;
  /** The user's message that this one is another version of. */
  readonly edit?: string | undefined;
  /**
   * For clients that name messages by ids of their own. A message that is not stored yet is a new one; of a stored one, another
   * answer or another version is wanted, or the content decides. An edited message keeps its id in these clients.
   */
  readonly resent?: "regenerate" | "edit" | "either" | undefined;
  /** With `resent`: the answer that is replaced. */
  readonly answerId?: string | undefined;
  /**
   * With `resent`: the user's message before it that the client shows. A new message edits the question that follows that one,
   * for clients that give an edited message another id.
   */
  readonly follows?: string | undefined;
}

/** The content of a message. */
export interface QuestionContent {
  readonly messageId: string;
  readonly message: string;
  readonly parts?: readonly PartJson[] | undefined;
}

/** A message and its place in the tree. */
export interface PlacedContent extends QuestionContent {
  readonly regenerate: string | null;
  readonly edit: string | null;
}

/** The most messages that follow the same one. */
const MAX_SIBLINGS = 100;
/** How many messages up the question of an answer, or another version of a message, is searched. */
const MAX_STEPS = 10_000;

interface Found {
  readonly messageId: string;
  readonly parentId: string | null;
  readonly role: string;
  readonly parts: PartJson[];
}

const FOUND = `m.message_id AS "messageId", m.parent_id AS "parentId", m.role, m.parts`;

/**
 * Finds what a message regenerates or edits. not_found, with the field, for an id that is not there. The caller holds the lock
 * on the conversation's row.
 */
export async function resolveFork(
  tx: Tx,
  conversation: ConversationId,
  { regenerate, edit, resent, ...client }: ForkRequest,
  content: QuestionContent,
  newId: () => string,
): Promise<PlacedContent> {
  if (regenerate !== undefined)
    return again(tx, conversation, regenerate, await questionOf(tx, conversation, regenerate));
  if (edit !== undefined) {
    const edited = await find(tx, conversation, edit);
    if (!edited) throw missing("edit", edit);
    return version(tx, conversation, edited, content);
  }
  if (resent === undefined) return { ...content, regenerate: null, edit: null };
  return resolveResent(tx, conversation, { resent, ...client }, content, newId);
}

async function resolveResent(
  tx: Tx,
  conversation: ConversationId,
  { resent, answerId, follows }: Omit<ForkRequest, "regenerate" | "edit">,
  content: QuestionContent,
  newId: () => string,
): Promise<PlacedContent> {
  const answer = answerId === undefined ? undefined : await find(tx, conversation, answerId);
  if (resent === "regenerate" && answer?.role === "assistant")
    return again(tx, conversation, answer.messageId, await questionOf(tx, conversation, answer.messageId));
  const stored = await find(tx, conversation, content.messageId);
  if (stored?.role !== "user") {
    const edited = stored || follows === undefined ? undefined : await askedAfter(tx, conversation, follows);
    return edited ? version(tx, conversation, edited, content) : { ...content, regenerate: null, edit: null };
  }
  if (resent !== "edit") {
    const shown = (await onActiveBranch(tx, conversation, stored)) ?? stored;
    const same = [shown, stored].find((of) => resent === "regenerate" || hasContent(of, content));
    if (same) return again(tx, conversation, same.messageId, same);
  }
  return version(tx, conversation, stored, { ...content, messageId: newId() });
}

/** Another answer to the question. */
async function again(
  tx: Tx,
  conversation: ConversationId,
  regenerate: string,
  { messageId, parts }: Found,
): Promise<PlacedContent> {
  await checkRoom(tx, conversation, messageId, "regenerate");
  const message = parts.flatMap(({ text }) => text ?? []).join("\n");
  const plain = parts.length === 1 && parts[0]!.text !== undefined;
  return { messageId, message, ...(!plain && { parts }), regenerate, edit: null };
}

/** Another version of a message. */
async function version(
  tx: Tx,
  conversation: ConversationId,
  { messageId: edit, role, parentId }: Found,
  content: QuestionContent,
): Promise<PlacedContent> {
  if (role !== "user")
    throw invalid(
      "edit",
      `The message ${edit} is not from a user. Edit a user's message, or regenerate its answer.`,
    );
  await checkRoom(tx, conversation, parentId, "edit");
  return { ...content, regenerate: null, edit };
}

/** The question that a message answers, or is itself. */
async function questionOf(tx: Tx, conversation: ConversationId, id: string): Promise<Found> {
  const { org, convId } = conversation;
  const rows = await tx.query<Found>({
    name: "message_question_of",
    text: `WITH RECURSIVE up AS (
        SELECT m.*, 1 AS n FROM runtime.messages m WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = $3
        UNION ALL
        SELECT m.*, up.n + 1 FROM up CROSS JOIN LATERAL (
          SELECT * FROM runtime.messages m WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = up.parent_id OFFSET 0
        ) m WHERE up.role <> 'user' AND up.n < ${MAX_STEPS}
      )
      SELECT ${FOUND} FROM up m ORDER BY n DESC LIMIT 1`,
    values: [org, convId, id],
  });
  const [question] = rows;
  if (!question) throw missing("regenerate", id);
  if (question.role !== "user")
    throw invalid(
      "regenerate",
      `The message ${id} has no question before it. Name an answer, or a user's message.`,
    );
  return question;
}

/** The message of the active branch at the same place as this one. */
async function onActiveBranch(
  tx: Tx,
  { org, convId }: ConversationId,
  { parentId }: Found,
): Promise<Found | undefined> {
  const [row] = await tx.query<Found>({
    name: "message_on_branch",
    text: `WITH RECURSIVE up AS (
        SELECT m.*, 1 AS n FROM runtime.conversations c
        JOIN runtime.messages m ON m.org_id = $1 AND m.conv_id = $2 AND m.message_id = c.leaf_id
        WHERE c.org_id = $1 AND c.conv_id = $2
        UNION ALL
        SELECT m.*, up.n + 1 FROM up CROSS JOIN LATERAL (
          SELECT * FROM runtime.messages m WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = up.parent_id OFFSET 0
        ) m WHERE up.parent_id IS DISTINCT FROM $3 AND up.n < ${MAX_STEPS}
      )
      SELECT ${FOUND} FROM up m WHERE m.parent_id IS NOT DISTINCT FROM $3 AND m.role = 'user' ORDER BY n DESC LIMIT 1`,
    values: [org, convId, parentId],
  });
  return row;
}

/** The question that follows a user's message, or another version of it, on the active branch. */
async function askedAfter(tx: Tx, conversation: ConversationId, id: string): Promise<Found | undefined> {
  const before = await find(tx, conversation, id);
  const shown = before?.role === "user" ? await onActiveBranch(tx, conversation, before) : undefined;
  if (!shown) return undefined;
  const { org, convId } = conversation;
  const [row] = await tx.query<Found>({
    name: "message_asked_after",
    text: `WITH RECURSIVE up AS (
        SELECT m.*, 1 AS n FROM runtime.conversations c
        JOIN runtime.messages m ON m.org_id = $1 AND m.conv_id = $2 AND m.message_id = c.leaf_id
        WHERE c.org_id = $1 AND c.conv_id = $2
        UNION ALL
        SELECT m.*, up.n + 1 FROM up CROSS JOIN LATERAL (
          SELECT * FROM runtime.messages m WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = up.parent_id OFFSET 0
        ) m WHERE up.message_id <> $3 AND up.n < ${MAX_STEPS}
      )
      SELECT ${FOUND} FROM up m
      WHERE m.role = 'user' AND m.run_id IS NOT NULL AND m.message_id <> $3
        AND EXISTS (SELECT FROM up WHERE message_id = $3)
      ORDER BY n DESC LIMIT 1`,
    values: [org, convId, shown.messageId],
  });
  return row;
}

async function find(tx: Tx, { org, convId }: ConversationId, id: string): Promise<Found | undefined> {
  const [row] = await tx.query<Found>({
    name: "message_find",
    text: `SELECT ${FOUND} FROM runtime.messages m WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = $3`,
    values: [org, convId, id],
  });
  return row;
}

/** Whether one more message may follow this one. */
async function checkRoom(
  tx: Tx,
  { org, convId }: ConversationId,
  parentId: string | null,
  field: string,
): Promise<void> {
  const [row] = await tx.query<{ count: number }>({
    name: parentId === null ? "message_count_roots" : "message_count_children",
    text: `SELECT count(*)::int AS count FROM runtime.messages m
      WHERE m.org_id = $1 AND m.conv_id = $2 AND m.parent_id ${parentId === null ? "IS NULL" : "= $3"}`,
    values: [org, convId, ...(parentId === null ? [] : [parentId])],
  });
  if (row!.count >= MAX_SIBLINGS)
    throw invalid(field, `A message may have at most ${MAX_SIBLINGS} versions. Continue with one of them.`);
}

function hasContent({ parts }: Found, content: QuestionContent): boolean {
  return canonicalJson(parts) === canonicalJson([...partsOf(content)]);
}

function missing(field: string, id: string): KhalaError {
  const message = `There is no message ${JSON.stringify(id)} in this conversation. Send its message_id as received.`;
  return new KhalaError("not_found", message, { field });
}
