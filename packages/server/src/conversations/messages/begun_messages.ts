import type { Database } from "../../database/database.ts";
import type { ConversationRef } from "../conversation.ts";
import type { Cursor } from "../log/cursor.ts";
import type { Log, Position } from "../log/log.ts";
import { readEntry } from "../timeline/timeline.ts";
import { Transcript } from "../timeline/transcript.ts";
import { jsonb, MESSAGE, type MessageRow, messageOf, positionOf } from "./message_row.ts";

const PAGE = { entries: 500, bytes: 1 << 20 };

/**
 * Stores the messages that the active run began up to `head`, without their parts, at the end of the active branch. The caller
 * holds the lock on the conversation's row.
 */
export async function storeBegunMessages(
  tx: Pick<Database, "query">,
  log: Log,
  run: ConversationRef & { readonly runId: string },
  head: Cursor,
): Promise<void> {
  const { org, convId } = run;
  const [row] = await tx.query<{ leaf: string | null }>({
    name: "conversation_leaf",
    text: "SELECT leaf_id AS leaf FROM runtime.conversations WHERE org_id = $1 AND conv_id = $2",
    values: [org, convId],
  });
  const before = row?.leaf ?? null;
  const leaf = await placeBegunMessages(tx, log, { ...run, leaf: before }, { ...head, seq: head.seq + 1n });
  if (leaf === before) return;
  await tx.query({
    name: "conversation_move_leaf",
    text: "UPDATE runtime.conversations SET leaf_id = $3 WHERE org_id = $1 AND conv_id = $2",
    values: [org, convId, leaf],
  });
}

/**
 * Stores the messages that the active run began before a position of the log, without their parts: what is posted there
 * follows them, and the run stores its own messages only at intervals. Returns the end of the active branch. The caller holds
 * the lock on the conversation's row.
 */
export async function placeBegunMessages(
  tx: Pick<Database, "query">,
  log: Log,
  {
    org,
    convId,
    logName,
    runId,
    leaf,
  }: ConversationRef & { readonly runId: string; readonly leaf: string | null },
  end: Cursor,
): Promise<string | null> {
  const rows = await tx.query<MessageRow>({
    name: "messages_of_run_places",
    text: `SELECT ${MESSAGE}, '[]'::jsonb AS parts FROM runtime.messages m
      WHERE m.org_id = $1 AND m.run_id = $3 AND m.conv_id = $2 ORDER BY m.inserted_at, m.message_id`,
    values: [org, convId, runId],
  });
  const known = new Set(rows.map(({ message_id }) => message_id));
  const transcript = new Transcript(rows.map(messageOf));
  let at: Position = { seq: 0n, time: 0 };
  for (const stored of rows.map(positionOf))
    if (stored?.epoch === end.epoch && stored.seq > at.seq) at = stored;
  while (at.seq < end.seq) {
    const page = await log.read(logName, at, PAGE);
    if (page?.epoch !== end.epoch || page.entries.length === 0) break;
    for (const entry of page.entries) {
      at = entry;
      if (entry.seq >= end.seq) break;
      const event = readEntry(entry);
      if (event.runId === runId) transcript.add(event);
    }
  }
  const begun = transcript.last().filter(({ message_id = "" }) => !known.has(message_id));
  if (begun.length === 0) return leaf;
  await tx.query({
    name: "messages_place",
    text: `INSERT INTO runtime.messages (org_id, conv_id, message_id, parent_id, role, author, run_id, parts, status, created_at)
      SELECT $1, $2, v ->> 'message_id', coalesce(lag(v ->> 'message_id') OVER (ORDER BY n), $4), v ->> 'role', v ->> 'author', $3,
        '[]', 'streaming', coalesce((v ->> 'created_at')::timestamptz, now())
      FROM jsonb_array_elements($5::jsonb) WITH ORDINALITY AS i (v, n) ORDER BY n`,
    values: [org, convId, runId, leaf, jsonb(begun.map(({ parts: _, ...message }) => message))],
  });
  return begun.at(-1)!.message_id!;
}
