import type { ConversationRef, LeasedRun } from "../conversation.ts";
import { Fenced, type Log, type Position } from "../log/log.ts";
import { endsRun, readEntry } from "../timeline/timeline.ts";
import { Transcript } from "../timeline/transcript.ts";
import { messageOf, positionOf } from "./message_row.ts";
import type { MessageStore } from "./message_store.ts";

const PAGE = { entries: 500, bytes: 1 << 20 };

/** Stores what the log still has of a run whose server is lost, and that server did not store. */
export async function recordOrphan(
  store: MessageStore,
  log: Log,
  run: LeasedRun & ConversationRef,
  epoch: string,
): Promise<void> {
  const rows = await store.ofRun(run);
  const transcript = new Transcript(rows.map(messageOf));
  const changed = new Set<string>();
  let resumed = false;
  let at: Position = { seq: 0n, time: 0 };
  for (const row of rows) {
    const stored = positionOf(row);
    if (stored?.epoch === epoch && stored.seq > at.seq) at = stored;
  }
  let contiguous = at.seq > 0n;
  for (;;) {
    const page = await log.read(run.logName, at, PAGE);
    if (page?.epoch !== epoch) break;
    // Entries in between were trimmed: what is stored is a better end than a text with a hole.
    if (contiguous && page.entries[0] && page.entries[0].seq !== at.seq + 1n) break;
    contiguous = true;
    for (const entry of page.entries) {
      const event = readEntry(entry);
      // The end is stored with the run's outcome.
      if (event.runId !== run.runId || endsRun(event)) continue;
      const id = transcript.add(event);
      if (id) changed.add(id);
      if (event.event.run_resumed) resumed = true;
    }
    const last = page.entries.at(-1);
    if (!last) break;
    at = last;
  }
  const all = transcript.last();
  if (resumed) {
    const kept = all.map(({ message_id = "" }) => message_id);
    for (const id of kept) changed.add(id);
    if (!(await store.cutBack(run, kept))) throw new Fenced("Another server has taken the run over.");
  }
  const messages = all.filter(({ message_id = "" }) => changed.has(message_id));
  if (messages.length === 0) return;
  if (!(await store.save(run, messages, { epoch, ...at })))
    throw new Fenced("Another server has taken the run over.");
}
