import { KhalaError } from "@khala/contracts";
import type { BranchChangedJson, ChooseBranchResponseJson } from "@khala/contracts/conversation/v1";
import type { Database } from "../../database/database.ts";
import { type ConversationRef, deletedMeanwhile, unlessGone } from "../conversation.ts";
import { formatCursor } from "../log/cursor.ts";
import type { Log } from "../log/log.ts";
import { entryText } from "../runs/run_log.ts";
import type { MessageStore } from "./message_store.ts";

/** The branches of conversations. Runs make them; here one of them is chosen. */
export interface Branches {
  /** Makes the branch through a message the active one, down to its newest message. */
  choose(conversation: ConversationRef, messageId: string): Promise<ChooseBranchResponseJson>;
  /**
   * Announces a choice that was not announced because its server was lost. Whatever else is appended
   * comes after it. Returns the cursor after it.
   */
  announce(conversation: ConversationRef): Promise<string>;
}

export interface BranchesDeps {
  readonly database: Database;
  readonly log: Log;
  readonly messages: Pick<MessageStore, "upTo">;
}

type Tx = Pick<Database, "query">;

/** The maximum size of the new branch in an event. Clients load a longer one. */
const IN_EVENT = { messages: 100, bytes: 128 << 10 };

interface Lock {
  readonly leaf: string | null;
  readonly busy: string | null;
  readonly unannounced: string | null;
}

/** Opens the branches. */
export function openBranches({ database, log, messages }: BranchesDeps): Branches {
  /**
   * The choice is committed before it is announced, so that a reader of the event finds the new branch in the table. It is
   * remembered until it is announced, so that a server that dies in between leaves no client on the old branch.
   */
  async function announce(conversation: ConversationRef): Promise<string> {
    const { logName, generation } = conversation;
    return database.interactive(async (tx) => {
      const { leaf, unannounced } = await lock(tx, conversation);
      const { epoch, head } = await log.open(logName, generation).catch(unlessGone);
      if (unannounced === null || leaf === null) return formatCursor({ epoch, ...head });
      const branch_changed = await changeOf(tx, conversation, { from: unannounced, to: leaf });
      const appended = await log
        .append(logName, [entryText("", { branch_changed })], { epoch })
        .catch(unlessGone);
      await tx.query({
        name: "branch_announced",
        text: "UPDATE runtime.conversations SET announce_from = NULL WHERE org_id = $1 AND conv_id = $2",
        values: [conversation.org, conversation.convId],
      });
      return formatCursor({ epoch, ...appended.head });
    });
  }

  /** The changes that take a socket from the end of one branch to the end of another. */
  async function changeOf(
    tx: Tx,
    { org, convId }: ConversationRef,
    { from, to }: { readonly from: string; readonly to: string },
  ): Promise<BranchChangedJson> {
    const [path] = await tx.query<{ count: number; parent: string | null }>({
      name: "branch_path",
      text: `WITH RECURSIVE old AS (
          SELECT message_id, parent_id FROM runtime.messages WHERE org_id = $1 AND conv_id = $2 AND message_id = $3
          UNION ALL
          SELECT m.message_id, m.parent_id FROM old CROSS JOIN LATERAL (
            SELECT message_id, parent_id FROM runtime.messages
            WHERE org_id = $1 AND conv_id = $2 AND message_id = old.parent_id OFFSET 0) m
        ), new AS (
          SELECT 0 AS n, $4::text COLLATE "C" AS parent_id
          UNION ALL
          SELECT new.n + 1, m.parent_id FROM new CROSS JOIN LATERAL (
            SELECT parent_id FROM runtime.messages
            WHERE org_id = $1 AND conv_id = $2 AND message_id = new.parent_id OFFSET 0) m
          WHERE new.parent_id NOT IN (SELECT message_id FROM old)
        )
        SELECT n AS count, parent_id AS parent FROM new ORDER BY n DESC LIMIT 1`,
      values: [org, convId, from, to],
    });
    const { count, parent } = path!;
    const parent_id = parent ?? "";
    if (count === 0 || count > IN_EVENT.messages) return { parent_id, reload: true };
    const page = await messages.upTo({ org, convId }, to, { ...IN_EVENT, messages: count });
    const change = { parent_id, messages: [...page.messages] };
    const fits =
      page.messages.length === count && Buffer.byteLength(JSON.stringify(change)) <= IN_EVENT.bytes;
    return fits ? change : { parent_id, reload: true };
  }

  return {
    announce,

    async choose(conversation, messageId) {
      const chosen = await database.interactive(async (tx) => {
        const { leaf, busy, unannounced } = await lock(tx, conversation);
        const found = await newestBelow(tx, conversation, messageId);
        if (found === undefined) {
          const message = `There is no message ${JSON.stringify(messageId)} in this conversation. Send its message_id as received.`;
          throw new KhalaError("not_found", message, { field: "message_id" });
        }
        if (leaf !== null && (await isAbove(tx, conversation, messageId, leaf))) return leaf;
        if (busy !== null) {
          const message = "The active branch has an active or queued run. Wait for its end, or stop it.";
          throw new KhalaError("conversation_busy", message, { retry_after_ms: 1_000, field: "message_id" });
        }
        await tx.query({
          name: "branch_choose",
          text: `UPDATE runtime.conversations SET leaf_id = $3, announce_from = $4, updated_at = now()
            WHERE org_id = $1 AND conv_id = $2`,
          values: [conversation.org, conversation.convId, found, unannounced ?? leaf],
        });
        return found;
      });
      return { message_id: chosen, cursor: await announce(conversation) };
    },
  };
}

async function lock(tx: Tx, { org, convId, generation }: ConversationRef): Promise<Lock> {
  const [row] = await tx.query<Lock>({
    name: "branch_lock",
    text: `SELECT leaf_id AS leaf, coalesce(run_id, CASE WHEN queued > 0 THEN '' END) AS busy, announce_from AS unannounced
      FROM runtime.conversations
      WHERE org_id = $1 AND conv_id = $2 AND generation = $3 AND removed_at IS NULL FOR NO KEY UPDATE`,
    values: [org, convId, generation],
  });
  if (!row) throw deletedMeanwhile();
  return row;
}

/** The newest message that follows this one, at whatever distance; undefined when there is no such message. */
async function newestBelow(
  tx: Tx,
  { org, convId }: ConversationRef,
  messageId: string,
): Promise<string | undefined> {
  const [row] = await tx.query<{ id: string }>({
    name: "branch_newest_below",
    text: `WITH RECURSIVE below AS (
        SELECT message_id, parent_id, inserted_at, 0 AS n FROM runtime.messages
        WHERE org_id = $1 AND conv_id = $2 AND message_id = $3
        UNION ALL
        SELECT m.message_id, m.parent_id, m.inserted_at, below.n + 1 FROM below CROSS JOIN LATERAL (
          SELECT message_id, parent_id, inserted_at FROM runtime.messages
          WHERE parent_id = below.message_id AND conv_id = $2 AND org_id = $1 OFFSET 0) m
      )
      SELECT message_id AS id FROM below ORDER BY inserted_at DESC, n DESC LIMIT 1`,
    values: [org, convId, messageId],
  });
  return row?.id;
}

/** Whether the branch that ends with `leaf` contains a message. */
async function isAbove(
  tx: Tx,
  { org, convId }: ConversationRef,
  messageId: string,
  leaf: string,
): Promise<boolean> {
  const [row] = await tx.query<{ above: boolean }>({
    name: "branch_is_above",
    text: `WITH RECURSIVE up AS (
        SELECT message_id, parent_id FROM runtime.messages WHERE org_id = $1 AND conv_id = $2 AND message_id = $4
        UNION ALL
        SELECT m.message_id, m.parent_id FROM up CROSS JOIN LATERAL (
          SELECT message_id, parent_id FROM runtime.messages
          WHERE org_id = $1 AND conv_id = $2 AND message_id = up.parent_id OFFSET 0) m
        WHERE up.message_id <> $3
      )
      SELECT EXISTS (SELECT FROM up WHERE message_id = $3) AS above`,
    values: [org, convId, messageId, leaf],
  });
  return row!.above;
}
