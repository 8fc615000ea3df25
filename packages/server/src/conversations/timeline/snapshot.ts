import { KhalaError } from "@khala/contracts";
import type {
  EventJson,
  PendingCallJson,
  RunJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";
import { notFound } from "../../access/access.ts";
import type { ConversationRef } from "../conversation.ts";
import type { Cursor } from "../log/cursor.ts";
import type { Position } from "../log/log.ts";
import { type MessageRow, messageOf, positionOf } from "../messages/message_row.ts";
import type { MessageStore, PageLimits, Tail } from "../messages/message_store.ts";
import type { ConversationReader } from "./reader.ts";
import { endsRun, messageIdOf, readEntry, type TimelineEvent } from "./timeline.ts";
import { type RunEnd, Transcript } from "./transcript.ts";

/** The newest messages of a conversation at a position of its log. */
export interface Snapshot {
  /** Oldest first. */
  readonly messages: readonly TranscriptMessageJson[];
  /** The messages of the active run. */
  readonly current: readonly TranscriptMessageJson[];
  /** The cursor of older messages. */
  readonly before: string | undefined;
  /** The end of a run, if it came after what is stored. */
  endOf(runId: string): RunEnd | undefined;
  /** The calls a run waits for, if it began to wait after the stored messages. */
  waitingFor(runId: string): readonly PendingCallJson[] | undefined;
}

/** The active run as the log has it, null when it has ended there: its row is updated a moment later. */
export function activeRun(run: RunJson, snapshot: Snapshot): RunJson | null {
  const { run_id: runId = "", status } = run;
  if (snapshot.endOf(runId)) return null;
  const calls = status === "running" ? snapshot.waitingFor(runId) : undefined;
  return calls ? { ...run, status: "waiting", waits_for: [...calls] } : run;
}

/** A page of messages, unless a caller asks for another one. */
export const PAGE: PageLimits = { messages: 100, bytes: 4 << 20 };
const MAX_ATTEMPTS = 5;

/**
 * The newest messages at the reader's head, from the table and the log's entries after it. Valid until the caller awaits
 * again. Undefined when the reader has ended.
 */
export async function loadSnapshot(
  reader: ConversationReader,
  store: Pick<MessageStore, "tail">,
  conversation: ConversationRef,
  limits: PageLimits = PAGE,
): Promise<Snapshot | undefined> {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const { head, endsInPost } = reader;
    const tail = await store.tail(conversation, limits);
    if (!tail) throw notFound("conversation", conversation.convId);
    if (reader.ended) return undefined;
    const fold = new TailFold(reader.epoch, head, tail);
    // The table is ahead of this reader, or may be: runs that ended before the table was read are whole in it.
    if (!fold.stored || fold.newest.seq > reader.head.seq) await reader.refresh();
    let position: Position | undefined = fold.stored;
    if (tail.activeRun !== null) position ??= await reader.oldest();
    // A post is in the log a moment before it is in the table.
    else if (!endsInPost || fold.newest.seq >= head.seq) position = head;
    else position = laterOf(fold.newest, await reader.oldest());
    let usable = true;
    // The check and the return happen in one tick: every later entry is delivered.
    while (usable && !reader.ended && position && position.seq < reader.head.seq) {
      const entries = await reader.after(position);
      usable =
        entries !== undefined && entries.length > 0 && entries.every((entry) => fold.add(readEntry(entry)));
      position = entries?.at(-1) ?? position;
    }
    if (reader.ended) return undefined;
    if (usable) return fold.snapshot(limits);
  }
  const message = "The conversation changes faster than it can be read. Try again in a moment.";
  throw new KhalaError("unavailable", message, { retry_after_ms: 1_000 });
}

/** Folds the entries of the log that the table does not have yet. */
class TailFold {
  readonly #head: Position;
  readonly #tail: Tail;
  readonly #transcript: Transcript;
  readonly #positions = new Map<string, Position>();
  /** Up to here the table has the active run, if its log is this one. */
  readonly stored: Cursor | undefined;
  /** The active run was stored in another log. */
  readonly #moved: boolean;
  /** Whether everything that follows comes after what the table has. */
  #begun: boolean;

  constructor(epoch: string, head: Position, tail: Tail) {
    this.#head = head;
    this.#tail = tail;
    this.#transcript = new Transcript(tail.rows.map(messageOf));
    const stored = tail.rows
      .filter(({ run_id }) => run_id !== null && run_id === tail.activeRun)
      .map(positionOf)
      .filter((position) => position !== undefined);
    this.stored = stored.filter((at) => at.epoch === epoch).sort((a, b) => (a.seq < b.seq ? 1 : -1))[0];
    this.#moved = stored.length > 0 && !this.stored;
    this.#begun = this.stored !== undefined;
    for (const row of tail.rows) this.#note(row, epoch);
  }

  /** Up to here the table has some messages. */
  get newest(): Position {
    return [...this.#positions.values()].reduce(laterOf, { seq: 0n, time: 0 });
  }

  #note(row: MessageRow, epoch: string): void {
    const at = positionOf(row);
    if (at?.epoch === epoch) this.#positions.set(row.message_id, at);
  }

  /** Adds an entry; false when the table has to be read again. */
  add(event: TimelineEvent): boolean {
    // The table has the other branch, as soon as the log has the event.
    if (event.runId === "" && event.event.branch_changed) return event.seq <= this.#head.seq;
    if (event.runId === "") this.#addForeign(event);
    else if (this.#begun) this.#transcript.add(event);
    else if (event.runId === this.#tail.activeRun) {
      // Its row was read before the run continued in this log. A lost run may end here without having continued.
      if (this.#moved && !endsRun(event)) return false;
      this.#begun = true;
      this.#transcript.add(event);
    }
    // A run that began after the head was taken, and may have ended before the table was read.
    else if (event.seq > this.#head.seq) return false;
    return true;
  }

  /** An event without a run, whose message may be stored, or may be older than this page. */
  #addForeign(event: TimelineEvent): void {
    const id = messageIdOf(event.event);
    if (!id || event.seq <= (this.#positions.get(id)?.seq ?? 0n)) return;
    if (event.seq <= this.#head.seq && !this.#begun && !this.#isUncommitted(event.event)) return;
    if (event.event.message || this.#transcript.has(id)) this.#transcript.add(event);
  }

  /** Whether the table gets this event in a moment: nothing is posted between the claim of a run and its first entry. */
  #isUncommitted({ message }: EventJson): boolean {
    if (this.#tail.activeRun !== null) return false;
    // Another message is one of another branch.
    return !message || (message.parent_id ?? "") === (this.#transcript.last(1)[0]?.message_id ?? "");
  }

  snapshot(limits: PageLimits): Snapshot {
    const transcript = this.#transcript;
    const active = this.#tail.activeRun;
    const running = transcript.running ?? (active && !transcript.endOf(active) ? active : undefined);
    const messages = transcript.last(limits.messages);
    const [oldest] = messages;
    return {
      messages,
      current: transcript.last().filter(({ run_id }) => run_id !== "" && run_id === running),
      before: oldest?.parent_id ? oldest.message_id : undefined,
      endOf: (runId) => transcript.endOf(runId),
      waitingFor: (runId) => transcript.waitingFor(runId),
    };
  }
}

function laterOf(a: Position, b: Position | undefined): Position {
  return b && b.seq > a.seq ? b : a;
}
