import { KhalaError } from "@khala/contracts";
import type { Context } from "../../kit/context.ts";
import { Wake } from "../../kit/service.ts";
import { type Cursor, formatCursor } from "../log/cursor.ts";
import type { Position } from "../log/log.ts";
import type { FollowedEvent } from "../plane.ts";
import type { ConversationReader } from "./reader.ts";
import { readEntry } from "./timeline.ts";

/** It is woken by every entry; this is only in case. */
const LOOK_AGAIN_MS = 30_000;

/** The events of a conversation after a cursor. Reads on when it is asked for the next one, so a slow caller costs no memory. */
export async function* followReader(
  context: Context,
  reader: ConversationReader,
  cursor: Cursor,
  signal: AbortSignal,
): AsyncGenerator<FollowedEvent, void, undefined> {
  if (cursor.epoch !== reader.epoch) throw stale();
  // Another server may have read further than this one.
  if (cursor.seq > reader.head.seq) await reader.refresh();
  if (cursor.seq > reader.head.seq) throw stale();
  const wake = new Wake();
  const follower = { live: () => wake.wake(), gone: () => wake.wake() };
  let position: Position = cursor;
  reader.goLive(follower);
  try {
    while (!signal.aborted) {
      if (position.seq >= reader.head.seq) {
        if (reader.over) throw stale();
        await wake.wait(context, LOOK_AGAIN_MS, signal);
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
    "What comes after this cursor is not all there any more. Get the conversation's snapshot, and go on from its cursor.";
  return new KhalaError("stale_cursor", message);
}
