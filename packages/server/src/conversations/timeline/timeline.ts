import { CONVERSATION_CHANNEL } from "@khala/contracts";
import type { EntryJson, EventJson, RunJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { type WireFrame, wireFrame } from "../../kit/wire_frame.ts";
import { formatCursor } from "../log/cursor.ts";
import type { Entry } from "../log/log.ts";

/** What is sent to a socket at once: one frame or several, each encoded once per kind of socket, however many there are. */
export interface Outgoing {
  readonly frames: readonly TimelineFrame[];
  /** For `/ws`. */
  readonly plain: WireFrame;
  /** For the channel `conversation:<conv_id>`, in broadcast form. */
  readonly phoenix: WireFrame;
}

/** A frame of a conversation. */
export class TimelineFrame implements Outgoing {
  readonly #convId: string;
  readonly #head: string;
  readonly #rest: string;
  #plain: WireFrame | undefined;
  #phoenix: WireFrame | undefined;

  /** Of one text or of two, which are joined only where they are written. */
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

/** Frames that came together: a socket takes them in one write. */
export class TimelineFrames implements Outgoing {
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

/** An event of the log, read. */
export interface TimelineEvent {
  readonly seq: bigint;
  /** Empty when it belongs to no run. */
  readonly runId: string;
  readonly event: EventJson;
}

/** Reads an entry of a conversation's log. */
export function readEntry({ seq, data }: Entry): TimelineEvent {
  const { run_id = "", event = {} } = JSON.parse(data) as EntryJson;
  return { seq, runId: run_id === ZERO_RUN ? "" : run_id, event };
}

/** Whether it is the last event of its run. */
export function endsRun({ event }: TimelineEvent): boolean {
  return (event.run_finished ?? event.run_failed ?? event.run_stopped) !== undefined;
}

/** The beginning of every entry that this server wrote: a word on its way need not be taken apart and put together again. */
const WRITTEN = /^\{"run_id":"([0-9A-Za-z-]*)","event":\{"(\w+)":/;
const ENDS = new Set(["run_finished", "run_failed", "run_stopped"]);

/** The run that an entry belongs to. */
interface EntryRun {
  readonly runId: string;
  /** Whether it is the run's last one. */
  readonly ends: boolean;
}

/** What the beginning says, if it is as this server writes it. */
function writtenRun({ data }: Entry): EntryRun | undefined {
  const [, runId, kind] = WRITTEN.exec(data) ?? [];
  return runId !== undefined && runId !== ZERO_RUN ? { runId, ends: ENDS.has(kind!) } : undefined;
}

/** The run that an entry belongs to, and whether it ends it. */
export function runOf(entry: Entry): EntryRun {
  const written = writtenRun(entry);
  if (written) return written;
  const event = readEntry(entry);
  return { runId: event.runId, ends: endsRun(event) };
}

/** What an entry is on a socket: the same for everybody, with or without a run. */
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

/** The first frame of a socket. */
export function helloFrame(convId: string, cursor: string, run: RunJson | null): TimelineFrame {
  return new TimelineFrame(convId, JSON.stringify({ type: "hello", conv_id: convId, cursor, run }));
}

/** The messages up to a cursor. */
export function snapshotFrame(
  convId: string,
  messages: readonly TranscriptMessageJson[],
  cursor: string,
): TimelineFrame {
  return new TimelineFrame(convId, JSON.stringify({ type: "snapshot", messages, cursor }));
}

/** Why what a client has cannot be continued. */
export type ResyncReason = "trimmed" | "deleted" | "foreign_cursor";

/** Tells a client to forget what it has: a snapshot follows. */
export function resyncFrame(convId: string, reason: ResyncReason): TimelineFrame {
  return new TimelineFrame(convId, JSON.stringify({ type: "resync", reason }));
}

/** A sign of life. */
export function heartbeatFrame(convId: string, cursor: string): TimelineFrame {
  return new TimelineFrame(convId, JSON.stringify({ type: "heartbeat", cursor }));
}

/** Why a socket is about to be closed. */
export function errorFrame(convId: string, error: { code: string; message: string }): TimelineFrame {
  return new TimelineFrame(
    convId,
    JSON.stringify({ type: "error", code: error.code, message: error.message }),
  );
}
