import { CONVERSATION_CHANNEL } from "@khala/contracts";
import type {
  EntryJson,
  EventJson,
  QueuedMessageJson,
  RunJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";
import { type WireFrame, wireFrame } from "../../kit/wire_frame.ts";
import { formatCursor } from "../log/cursor.ts";
import type { Entry } from "../log/log.ts";
import { isForeign, readForeign } from "./foreign.ts";

/** One or several frames for one socket write, encoded once per protocol for all sockets. */
export interface OutgoingFrames {
  readonly frames: readonly TimelineFrame[];
  /** For `/ws`. */
  readonly plain: WireFrame;
  /** For the Phoenix channel `conversation:<conv_id>`, as a broadcast. */
  readonly phoenix: WireFrame;
}

/** A frame of a conversation. */
export class TimelineFrame implements OutgoingFrames {
  readonly #convId: string;
  readonly #head: string;
  readonly #rest: string;
  #plain: WireFrame | undefined;
  #phoenix: WireFrame | undefined;

  /** The text may come in two parts, which are joined only when they are encoded. */
  constructor(convId: string, head: string, rest = "") {
    this.#convId = convId;
    this.#head = head;
    this.#rest = rest;
  }

  get json(): string {
    return this.#head + this.#rest;
  }

  get frames(): readonly TimelineFrame[] {
    return [this];
  }

  get plain(): WireFrame {
    this.#plain ??= wireFrame(this.#head, this.#rest);
    return this.#plain;
  }

  get phoenix(): WireFrame {
    this.#phoenix ??= wireFrame(`[null,null,"${CONVERSATION_CHANNEL}${this.#convId}","frame",${this.json}]`);
    return this.#phoenix;
  }
}

/** Several frames in one socket write. */
export class TimelineFrames implements OutgoingFrames {
  readonly frames: readonly TimelineFrame[];
  #plain: WireFrame | undefined;
  #phoenix: WireFrame | undefined;

  constructor(frames: readonly TimelineFrame[]) {
    this.frames = frames;
  }

  get plain(): WireFrame {
    this.#plain ??= { bytes: Buffer.concat(this.frames.map(({ plain }) => plain.bytes)) };
    return this.#plain;
  }

  get phoenix(): WireFrame {
    this.#phoenix ??= { bytes: Buffer.concat(this.frames.map(({ phoenix }) => phoenix.bytes)) };
    return this.#phoenix;
  }
}

const ZERO_RUN = "00000000-0000-0000-0000-000000000000";

/** A parsed event of the log. */
export interface TimelineEvent {
  readonly seq: bigint;
  /** Empty for an event without a run. */
  readonly runId: string;
  readonly event: EventJson;
}

/** Parses an entry of a conversation's log. The event is empty for another program's record that is none. */
export function readEntry({ seq, data }: Entry): TimelineEvent {
  return { seq, ...readEvent(data) };
}

/** Parses the text of an entry. */
export function readEvent(data: string): Omit<TimelineEvent, "seq"> {
  const { run_id = "", event = {} } = isForeign({ data })
    ? readForeign(data)
    : (JSON.parse(data) as EntryJson);
  return { runId: run_id === ZERO_RUN ? "" : run_id, event };
}

/** Whether it is the last event of its run. */
export function endsRun({ event }: Pick<TimelineEvent, "event">): boolean {
  return (event.run_finished ?? event.run_failed ?? event.run_stopped) !== undefined;
}

/** The message that an event is, or is part of; undefined when it names none. */
export function messageIdOf(event: EventJson): string | undefined {
  const { message, text_delta, reasoning_delta, tool_call, tool_result } = event;
  const { tool_approval_requested, tool_approval_decided, file_added, source_added, custom } = event;
  const words = message ?? text_delta ?? reasoning_delta;
  const call = tool_call ?? tool_result ?? tool_approval_requested ?? tool_approval_decided;
  return (words ?? call ?? file_added ?? source_added ?? custom)?.message_id || undefined;
}

/** The prefix of entries written by this server. Matching it avoids parsing and encoding each one again. */
const WRITTEN = /^\{"run_id":"([0-9A-Za-z-]*)","event":\{"(\w+)":/;
const ENDS = new Set(["run_finished", "run_failed", "run_stopped"]);
/** What the server itself writes without a run, after it has committed. */
const ANNOUNCEMENTS = new Set(["queue_changed", "participants_changed", "branch_changed"]);

/** The run that an entry belongs to. */
interface EntryRun {
  readonly runId: string;
  /** Whether it is the run's last one. */
  readonly ends: boolean;
  /** Whether somebody posted it. */
  readonly posted: boolean;
}

/** The run of an entry from its prefix, if this server wrote it. */
function writtenRun({ data }: Entry): EntryRun | undefined {
  const [, runId, kind] = WRITTEN.exec(data) ?? [];
  if (runId === undefined || runId === ZERO_RUN) return undefined;
  return { runId, ends: ENDS.has(kind!), posted: runId === "" && !ANNOUNCEMENTS.has(kind!) };
}

/** The run that an entry belongs to, and whether it ends it. */
export function runOf(entry: Entry): EntryRun {
  const written = writtenRun(entry);
  if (written) return written;
  const event = readEntry(entry);
  return { runId: event.runId, ends: endsRun(event), posted: false };
}

/** The frame of an entry. */
export function eventFrame(convId: string, epoch: string, entry: Entry): TimelineFrame {
  const cursor = formatCursor({ epoch, seq: entry.seq, time: entry.time });
  const head = `{"type":"event","seq":"${entry.seq}","cursor":"${cursor}",`;
  if (writtenRun(entry)) return new TimelineFrame(convId, head, entry.data.slice(1));
  const { runId, event } = readEntry(entry);
  return new TimelineFrame(
    convId,
    `${head}"run_id":${JSON.stringify(runId)},"event":${JSON.stringify(event)}}`,
  );
}

/** The first frame on a socket. */
export function helloFrame(
  convId: string,
  cursor: string,
  run: RunJson | null,
  queued: readonly QueuedMessageJson[],
): TimelineFrame {
  return new TimelineFrame(convId, JSON.stringify({ type: "hello", conv_id: convId, cursor, run, queued }));
}

/** The messages up to a cursor. */
export function snapshotFrame(
  convId: string,
  messages: readonly TranscriptMessageJson[],
  cursor: string,
): TimelineFrame {
  return new TimelineFrame(convId, JSON.stringify({ type: "snapshot", messages, cursor }));
}

/** Why a client cannot resume. */
export type ResyncReason = "trimmed" | "deleted" | "foreign_cursor";

/** Tells a client to discard its state; a snapshot follows. */
export function resyncFrame(convId: string, reason: ResyncReason): TimelineFrame {
  return new TimelineFrame(convId, JSON.stringify({ type: "resync", reason }));
}

/** A heartbeat with the current cursor. */
export function heartbeatFrame(convId: string, cursor: string): TimelineFrame {
  return new TimelineFrame(convId, JSON.stringify({ type: "heartbeat", cursor }));
}

/** The reason before a socket is closed. */
export function errorFrame(
  convId: string,
  { code, message, retry_after_ms }: { code: string; message: string; retry_after_ms?: number | string },
): TimelineFrame {
  const retry = retry_after_ms !== undefined && { retry_after_ms };
  return new TimelineFrame(convId, JSON.stringify({ type: "error", code, message, ...retry }));
}
