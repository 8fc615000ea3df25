import { KhalaError } from "@khala/contracts";
import type {
  EditQueuedRequestJson,
  PartJson,
  QueuedMessageJson,
  QueueStateJson,
} from "@khala/contracts/conversation/v1";
import { may, notFound } from "../../access/access.ts";
import type { Caller } from "../../access/viewer.ts";
import type { Database } from "../../database/database.ts";
import type { Announcer } from "../announce.ts";
import type { ConversationRef } from "../conversation.ts";
import { entryText } from "../runs/run_log.ts";
import { frameOf } from "./frame_queue.ts";

/** The content of a queued message that replaces the one before. */
export interface QueuedContent {
  readonly message: string;
  readonly parts?: readonly PartJson[];
}

/** The messages that wait for a conversation's active run to end. */
export interface Queue {
  /** The queue, in order. */
  list(conversation: ConversationRef): Promise<QueueStateJson>;
  /** Replaces the content of a message that has not begun; run_begun once it has, not_found once it is cancelled. */
  edit(
    caller: Caller,
    conversation: ConversationRef,
    runId: string,
    content: QueuedContent,
  ): Promise<QueueStateJson>;
  /** Ends a run that has not begun as stopped; run_begun once it has, not_found once it is cancelled. */
  cancel(conversation: ConversationRef, runId: string): Promise<QueueStateJson>;
  /** Appends the queue to the log. It never fails: the next `hello` has the queue too. */
  announce(conversation: ConversationRef): Promise<void>;
}

/** The queued messages of the conversation `c`, as JSON. */
export const QUEUED = `CASE WHEN c.queued > 0 THEN (
    SELECT jsonb_agg(jsonb_build_object('run_id', q.run_id, 'message_id', q.message_id,
      'parts', coalesce(q.parts, jsonb_build_array(jsonb_build_object('text', q.message))), 'author', q.sender,
      'created_at', to_char(q.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
      || CASE WHEN q.regenerate IS NULL THEN '{}' ELSE jsonb_build_object('regenerate', q.regenerate) END ORDER BY q.place)
    FROM runtime.conversation_runs q WHERE q.org_id = c.org_id AND q.conv_id = c.conv_id AND q.status = 'queued'
  ) END`;

type Tx = Pick<Database, "query">;

/** Opens the queues. */
export function openQueue(database: Database, announcer: Announcer): Queue {
  async function queued({ org, convId, generation }: ConversationRef): Promise<QueuedMessageJson[]> {
    const [row] = await database.query<{ queued: QueuedMessageJson[] | null }>({
      name: "conversation_queue",
      text: `SELECT ${QUEUED} AS queued FROM runtime.conversations c
        WHERE c.org_id = $1 AND c.conv_id = $2 AND c.generation = $3`,
      values: [org, convId, generation],
    });
    return row?.queued ?? [];
  }

  const announce = (conversation: ConversationRef, before?: readonly string[]) =>
    announcer.announce(
      conversation,
      async () => ({ queue_changed: { queued: frameOf(await queued(conversation)) } }),
      before,
    );

  return {
    list: async (conversation) => ({ queued: await queued(conversation) }),

    async edit(caller, conversation, runId, { message, parts }) {
      await database.interactive(async (tx) => {
        const { sender, regenerate } = await lockQueued(tx, conversation, runId);
        if (!may(caller, "queued_message.edit", { org: conversation.org, owner: sender }))
          throw notFound("queued message of yours with the run", runId);
        if (regenerate !== null) throw withoutMessage(runId);
        await tx.query({
          name: "conversation_edit_queued",
          text: "UPDATE runtime.conversation_runs SET message = $3, parts = $4 WHERE org_id = $1 AND run_id = $2",
          values: [conversation.org, runId, message, parts ? JSON.stringify(parts) : null],
        });
      });
      await announce(conversation);
      return { queued: await queued(conversation) };
    },

    async cancel(conversation, runId) {
      const { org, convId } = conversation;
      await database.interactive(async (tx) => {
        await lockQueued(tx, conversation, runId);
        // It never ran, so there is no end to report.
        await tx.query({
          name: "conversation_cancel_queued",
          text: `WITH counted AS (
              UPDATE runtime.conversations SET queued = queued - 1, updated_at = now() WHERE org_id = $1 AND conv_id = $2
            )
            UPDATE runtime.conversation_runs SET status = 'stopped', ended_at = now(), message = NULL, parts = NULL, reported = true
            WHERE org_id = $1 AND run_id = $3`,
          values: [org, convId, runId],
        });
      });
      await announce(conversation, [entryText(runId, { run_stopped: { reason: "cancelled" } })]);
      return { queued: await queued(conversation) };
    },

    announce: (conversation) => announce(conversation),
  };
}

/** Locks the conversation, and finds the queued run. */
async function lockQueued(
  tx: Tx,
  { org, convId, generation }: ConversationRef,
  runId: string,
): Promise<{ sender: string; regenerate: string | null }> {
  await tx.query({
    name: "conversation_queue_lock",
    text: `SELECT FROM runtime.conversations WHERE org_id = $1 AND conv_id = $2 AND generation = $3 FOR UPDATE`,
    values: [org, convId, generation],
  });
  const [run] = await tx.query<{ sender: string; status: string; begun: boolean; regenerate: string | null }>(
    {
      name: "conversation_queued_run",
      text: `SELECT sender, status, started_at IS NOT NULL AS begun, regenerate FROM runtime.conversation_runs
      WHERE org_id = $1 AND run_id = $2 AND conv_id = $3`,
      values: [org, runId, convId],
    },
  );
  if (run?.begun) throw begun(runId);
  // One that was cancelled is as good as none.
  if (run?.status !== "queued") throw notFound("queued message with the run", runId);
  return run;
}

function withoutMessage(runId: string): KhalaError {
  const message = `The run ${runId} regenerates an answer, so it has no message to edit. Cancel it, or send an edit of the original message.`;
  return new KhalaError("invalid_request", message, { field: "run_id" });
}

function begun(runId: string): KhalaError {
  const message = `The run ${runId} is no longer queued. Stop it if it is active, or send another message.`;
  return new KhalaError("run_begun", message);
}

/** Reads the new content of a queued message. */
export function readQueuedContent({ message = "", parts = [] }: EditQueuedRequestJson): QueuedContent {
  if (parts.length === 0) return { message };
  if (message !== "")
    throw new KhalaError("invalid_request", "Send message or parts, not both.", { field: "parts" });
  return { message: parts.map(({ text = "" }) => text).join(""), parts };
}
