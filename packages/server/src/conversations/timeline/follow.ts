import { KhalaError } from "@khala/contracts";
import type { Context } from "../../kit/context.ts";
import { Wake } from "../../kit/service.ts";
import { type Cursor, formatCursor } from "../log/cursor.ts";
import type { Position } from "../log/log.ts";
import type { FollowedEvent } from "../plane.ts";
import type { ConversationReader } from "./reader.ts";
import { readEntry } from "./timeline.ts";

/** A safety net: every entry wakes it. */
const RECHECK_MS = 30_000;

/** The events of a conversation after a cursor. Pull-based, so that a slow caller needs no buffer. */
export async function* followReader(
  context: Context,
  reader: ConversationReader,
  cursor: Cursor,
  signal: AbortSignal,
): AsyncGenerator<FollowedEvent, void, undefined> {
  if (cursor.epoch !== reader.epoch) throw stale();
  if (!(await reader.knows(cursor))) throw stale();
  const wake = new Wake();
  const follower = { deliver: () => wake.wake(), ended: () => wake.wake() };
  let position: Position = cursor;
  reader.goLive(follower);
  try {
    while (!signal.aborted) {
      if (position.seq >= reader.head.seq) {
        if (reader.ended) throw stale();
        await wake.wait(context, RECHECK_MS, signal);
        continue;
      }
      const entries = await reader.after(position);
      if (!entries) throw stale();
      for (const entry of entries) {
        if (signal.aborted) return;
        position = entry;
        yield { ...readEntry(entry), cursor: formatCursor({ epoch: reader.epoch, ...entry }) };
      }
    }
  } finally {
    reader.leave(follower);
  }
}

function stale(): KhalaError {
  const message =
    "Entries after this cursor were deleted. Load the conversation's snapshot and resume from its cursor.";
  return new KhalaError("stale_cursor", message);
}
