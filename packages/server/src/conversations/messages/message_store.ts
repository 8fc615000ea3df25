import { KhalaError } from "@khala/contracts";
import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { Database, Statement } from "../../database/database.ts";
import type { ConversationId, ConversationRef, LeasedRun } from "../conversation.ts";
import type { Cursor } from "../log/cursor.ts";
import { childrenOf, jsonb, MESSAGE, type MessageRow, messageOf, wordsOf } from "./message_row.ts";
import { findQuestion, type StoredQuestion } from "./question.ts";

/** The size of a page. The message that exceeds the bytes is its last. */
export interface PageLimits {
  readonly messages: number;
  readonly bytes: number;
}

/** The end of the active branch. */
export interface Tail {
  /** Oldest first: the newest, and all of the active run. */
  readonly rows: readonly MessageRow[];
  readonly activeRun: string | null;
}

/** A page of a branch, oldest first. */
export interface MessagePage {
  readonly messages: readonly TranscriptMessageJson[];
  /** The cursor of older messages. */
  readonly before: string | undefined;
}

/** The messages of conversations. */
export interface MessageStore {
  /** The newest messages; undefined when the conversation was deleted. */
  tail(conversation: ConversationRef, limits: PageLimits): Promise<Tail | undefined>;
  /** The messages before this one; invalid_request when there is no such message. */
  before(conversation: ConversationId, messageId: string, limits: PageLimits): Promise<MessagePage>;
  /** The newest messages of the branch that ends with this one. */
  upTo(conversation: ConversationId, messageId: string, limits: PageLimits): Promise<MessagePage>;
  /** All messages of a run, oldest first. */
  ofRun(run: ConversationId & { readonly runId: string }): Promise<readonly MessageRow[]>;
  /** Whether there is a message of this id. */
  has(conversation: ConversationId, messageId: string): Promise<boolean>;
  /** The position of a run's question; undefined when it is not stored. */
  question(
    run: ConversationId & { readonly runId: string; readonly messageId: string },
  ): Promise<StoredQuestion | undefined>;
  /** Stores messages of a run as they are at a position of the log; false when its lease is lost. */
  save(run: LeasedRun, messages: readonly TranscriptMessageJson[], at: Cursor): Promise<boolean>;
  /** Removes the run's messages, except the user's and these; false when its lease is lost. What followed them stays. */
  cutBack(run: LeasedRun, kept: readonly string[]): Promise<boolean>;
}

/**
 * Follows the parents, one by its key after the other: OFFSET 0 keeps the planner from reading all of a conversation for each
 * step. Parameters: org, conversation, messages, bytes.
 */
const walk = (start: string, also = "") => `branch AS (
    ${start}
    UNION ALL
    SELECT ${MESSAGE}, p.parts, b.n + 1, b.bytes + octet_length(p.parts)
    FROM branch b
    CROSS JOIN LATERAL (
      SELECT * FROM runtime.messages m WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = b.parent_id OFFSET 0
    ) m
    CROSS JOIN LATERAL (SELECT m.parts::text AS parts OFFSET 0) p
    WHERE (b.n < $3 AND b.bytes < $4) ${also}
  )`;

const start = (from: string) => `SELECT ${MESSAGE}, p.parts, 1 AS n, octet_length(p.parts)::bigint AS bytes
    FROM ${from} CROSS JOIN LATERAL (SELECT m.parts::text AS parts OFFSET 0) p`;

/** A row whose parts are still text: it is measured and sent as such. */
type Walked = Omit<MessageRow, "parts"> & { readonly parts: string };

const SIBLINGS = `${childrenOf("$1", "$2", "b.parent_id")} AS siblings,
  CASE WHEN b.n = 1 THEN ${childrenOf("$1", "$2", "b.message_id")} END AS replies`;

const parsed = (row: Walked): MessageRow => ({ ...row, parts: JSON.parse(row.parts) });

/** Opens the messages. */
export function openMessageStore(database: Database): MessageStore {
  async function branch(
    { org, convId }: ConversationId,
    messageId: string,
    { messages, bytes }: PageLimits,
  ): Promise<MessagePage> {
    const rows = await database.query<Walked>({
      name: "messages_branch",
      text: `WITH RECURSIVE ${walk(
        start(`(SELECT * FROM runtime.messages
            WHERE org_id = $1 AND conv_id = $2 AND message_id = $5) m`),
      )}
        SELECT b.*, ${SIBLINGS} FROM branch b ORDER BY n DESC`,
      values: [org, convId, messages, bytes, messageId],
    });
    return pageOf(rows.map(parsed));
  }

  /** Changes messages of a run, unless its lease is lost. The lock comes first: the change sees what its last holder has written. */
  async function whileHeld({ org, convId, runId, fence }: LeasedRun, change: Statement): Promise<boolean> {
    const lock = {
      name: "messages_lock",
      text: `SELECT FROM runtime.conversations
        WHERE org_id = $1 AND conv_id = $2 AND fence = $4 AND run_id = $3 FOR NO KEY UPDATE`,
      values: [org, convId, runId, fence],
    };
    const [, rows] = await database.transaction([lock, change]);
    return rows![0]!.held as boolean;
  }

  return {
    async tail({ org, convId, generation }, { messages, bytes }) {
      const rows = await database.query<Walked & { readonly active: string | null }>({
        name: "messages_tail",
        text: `WITH RECURSIVE conversation AS MATERIALIZED (
            SELECT leaf_id, run_id FROM runtime.conversations
            WHERE org_id = $1 AND conv_id = $2 AND generation = $5 AND removed_at IS NULL
          ), ${walk(
            start(`conversation c JOIN runtime.messages m
              ON m.org_id = $1 AND m.conv_id = $2 AND m.message_id = c.leaf_id`),
            "OR m.run_id = (SELECT run_id FROM conversation)",
          )}
          SELECT c.run_id AS active, b.*, ${SIBLINGS}
          FROM conversation c LEFT JOIN branch b ON true ORDER BY b.n DESC`,
        values: [org, convId, messages, bytes, generation],
      });
      const [first] = rows;
      if (!first) return undefined;
      // Without a message there is one row, with nulls.
      return { activeRun: first.active, rows: rows.filter((row) => row.message_id !== null).map(parsed) };
    },

    async before({ org, convId }, messageId, limits) {
      const [row] = await database.query<{ parent: string | null }>({
        name: "message_parent",
        text: `SELECT parent_id AS parent FROM runtime.messages
          WHERE org_id = $1 AND conv_id = $2 AND message_id = $3`,
        values: [org, convId, messageId],
      });
      if (!row) {
        const message = "`before` is not a message of this conversation. Send it exactly as received.";
        throw new KhalaError("invalid_request", message, { field: "before" });
      }
      if (row.parent === null) return { messages: [], before: undefined };
      const page = await branch({ org, convId }, row.parent, limits);
      // The last of this page is followed by a message of its own branch.
      return { ...page, messages: page.messages.map(({ replies: _, ...message }) => message) };
    },

    upTo: branch,

    ofRun: ({ org, convId, runId }) =>
      database.query({
        name: "messages_of_run",
        text: `SELECT ${MESSAGE}, m.parts FROM runtime.messages m
          WHERE m.org_id = $1 AND m.run_id = $3 AND m.conv_id = $2 ORDER BY m.inserted_at, m.message_id`,
        values: [org, convId, runId],
      }),

    async has({ org, convId }, messageId) {
      const rows = await database.query({
        name: "message_exists",
        text: "SELECT 1 FROM runtime.messages WHERE org_id = $1 AND conv_id = $2 AND message_id = $3",
        values: [org, convId, messageId],
      });
      return rows.length > 0;
    },

    question: (run) => findQuestion(database, run),

    save(run, messages, { epoch, seq, time }) {
      const { org, convId, runId, fence } = run;
      return whileHeld(run, {
        name: "messages_save",
        text: `WITH held AS MATERIALIZED (
            SELECT leaf_id FROM runtime.conversations WHERE org_id = $1 AND conv_id = $2 AND fence = $4 AND run_id = $3
          ), incoming AS MATERIALIZED (
            SELECT i.n, i.v, i.v ->> 'message_id' AS message_id, EXISTS (
              SELECT FROM runtime.messages m
              WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = i.v ->> 'message_id') AS known
            FROM jsonb_array_elements($5::jsonb) WITH ORDINALITY AS i(v, n)
          ), saved AS (
            INSERT INTO runtime.messages AS m (org_id, conv_id, message_id, parent_id, role, author, run_id, parts, status,
              log_epoch, log_seq, log_time, created_at)
            SELECT $1, $2, i.message_id,
              coalesce(lag(i.message_id) OVER (PARTITION BY i.known ORDER BY i.n), held.leaf_id),
              i.v ->> 'role', i.v ->> 'author', $3, i.v -> 'parts', i.v ->> 'status', $6, $7, $8,
              coalesce((i.v ->> 'created_at')::timestamptz, now())
            FROM incoming i, held
            ON CONFLICT (org_id, conv_id, message_id) DO UPDATE SET parts = excluded.parts, status = excluded.status,
              log_epoch = $6, log_seq = $7, log_time = $8, updated_at = now()
            WHERE m.run_id = $3
          ), moved AS (
            UPDATE runtime.conversations c
            SET leaf_id = (SELECT message_id FROM incoming WHERE NOT known ORDER BY n DESC LIMIT 1)
            FROM held WHERE c.org_id = $1 AND c.conv_id = $2 AND EXISTS (SELECT FROM incoming WHERE NOT known)
          )
          SELECT EXISTS (SELECT FROM held) AS held`,
        values: [org, convId, runId, fence, jsonb(messages), epoch, seq, time],
      });
    },

    cutBack(run, kept) {
      const { org, convId, runId, fence } = run;
      return whileHeld(run, {
        name: "messages_cut_back",
        text: `WITH RECURSIVE held AS MATERIALIZED (
            SELECT FROM runtime.conversations WHERE org_id = $1 AND conv_id = $2 AND fence = $4 AND run_id = $3
          ), gone AS (
            DELETE FROM runtime.messages m USING held
            WHERE m.org_id = $1 AND m.run_id = $3 AND m.conv_id = $2 AND m.role <> 'user' AND m.message_id <> ALL ($5::text[])
            RETURNING m.message_id, m.parent_id
          ), up AS (
            SELECT message_id, parent_id FROM gone
            UNION ALL
            SELECT up.message_id, gone.parent_id FROM up JOIN gone ON gone.message_id = up.parent_id
          ), before AS MATERIALIZED (
            -- The message that is left before a removed one.
            SELECT message_id, parent_id FROM up WHERE parent_id IS NULL OR parent_id NOT IN (SELECT message_id FROM gone)
          ), moved AS (
            UPDATE runtime.conversations c SET leaf_id = before.parent_id FROM before
            WHERE c.org_id = $1 AND c.conv_id = $2 AND c.leaf_id = before.message_id
          ), adopted AS (
            UPDATE runtime.messages m SET parent_id = before.parent_id FROM before
            WHERE m.org_id = $1 AND m.conv_id = $2 AND m.parent_id = before.message_id
              AND m.run_id IS DISTINCT FROM $3
          )
          SELECT EXISTS (SELECT FROM held) AS held`,
        values: [org, convId, runId, fence, kept],
      });
    },
  };
}

/** The page of rows of a branch. */
function pageOf(rows: readonly MessageRow[]): MessagePage {
  const [oldest] = rows;
  return { messages: rows.map(messageOf), before: oldest?.parent_id ? oldest.message_id : undefined };
}

/** Ends the messages of a run that still grow. The caller holds the lock on the conversation's row. */
export async function endMessages(
  tx: Pick<Database, "query">,
  { org, runId }: { readonly org: string; readonly runId: string },
  status: "done" | "failed" | "stopped",
): Promise<void> {
  await tx.query({
    name: "messages_end",
    text: `UPDATE runtime.messages m SET status = CASE WHEN m.status = 'streaming' THEN $3 ELSE m.status END,
        updated_at = now(), words = ${wordsOf("m.org_id", "c.owner", "m.parts")}
      FROM runtime.conversations c
      WHERE m.org_id = $1 AND m.run_id = $2 AND m.words IS NULL AND c.org_id = m.org_id AND c.conv_id = m.conv_id`,
    values: [org, runId, status],
  });
}
