import { KhalaError } from "@khala/contracts";
import type { RunJson } from "@khala/contracts/conversation/v1";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { type Cursor, formatCursor } from "../log/cursor.ts";
import type { Entry, Position } from "../log/log.ts";
import type { ConversationMetrics } from "../metrics.ts";
import type { ConversationReader, Follower } from "./reader.ts";
import {
  heartbeatFrame,
  helloFrame,
  type Outgoing,
  type ResyncReason,
  resyncFrame,
  snapshotFrame,
  TimelineFrames,
} from "./timeline.ts";

/** What a replay sends at once: many small events in one write, and no more than a socket takes easily. */
const PART_BYTES = 64 << 10;

/** Where a socket wants to begin: now, after a cursor, or with the last messages. */
export type Start =
  | { readonly kind: "now" }
  | { readonly kind: "after"; readonly cursor: Cursor }
  | { readonly kind: "replay"; readonly messages: number };

/** A socket, as a conversation sees it. */
export interface Member {
  /** Takes a frame; false when there is no room. */
  offer(frame: Outgoing): boolean;
  /** It has to go, and is told why. */
  end(error: KhalaError): void;
}

/** One socket's place in a conversation: replays what it missed, then goes live without a gap. */
export class Attachment implements Follower {
  readonly #convId: string;
  readonly #reader: ConversationReader;
  readonly #member: Member;
  readonly #context: Context;
  readonly #metrics: ConversationMetrics;
  readonly #closing = new AbortController();
  #position: Position;
  #room: (() => void) | undefined;

  constructor(
    convId: string,
    reader: ConversationReader,
    member: Member,
    context: Context,
    metrics: ConversationMetrics,
  ) {
    this.#convId = convId;
    this.#reader = reader;
    this.#member = member;
    this.#context = context;
    this.#metrics = metrics;
    this.#position = reader.head;
  }

  /** Says hello and brings the socket to where it is live. Resolves once that is under way. */
  async begin(start: Start, run: RunJson | null): Promise<void> {
    if (start.kind !== "now") this.#metrics.replays.add(1);
    if (start.kind === "after") return this.#beginAfter(start.cursor, run);
    // The log decides, not the run's record: this reader may not have read yet what ended it.
    if (start.kind === "now" && !this.#reader.streaming) {
      this.#hello(run);
      return this.#goLive();
    }
    // Somebody who comes in the middle of an answer gets what there is of it.
    const transcript = await this.#reader.transcript();
    if (this.#closed) return;
    if (this.#reader.over) return this.gone(this.#reader.over);
    const messages = start.kind === "replay" ? transcript.last(start.messages) : transcript.current();
    this.#position = this.#reader.head;
    this.#hello(run);
    if (start.kind === "replay" || messages.length > 0)
      this.#offer(snapshotFrame(this.#convId, messages, this.#reader.cursor));
    this.#goLive();
  }

  /** There is room again. */
  room(): void {
    this.#room?.();
  }

  /** Shows that the connection works, and how far it has come. */
  heartbeat(): void {
    const cursor = formatCursor({ epoch: this.#reader.epoch, ...this.#position });
    this.#member.offer(heartbeatFrame(this.#convId, cursor));
  }

  close(): void {
    this.#closing.abort();
    this.#reader.leave(this);
    this.#room?.();
  }

  live(last: Position, frames: Outgoing): void {
    this.#position = last;
    this.#offer(frames);
  }

  gone(reason: "deleted" | "trimmed"): void {
    this.#metrics.resyncs.add(1, { reason });
    this.#member.offer(resyncFrame(this.#convId, reason));
    this.close();
    this.#member.end(
      reason === "deleted"
        ? new KhalaError("not_found", "The conversation was deleted. Connect again to begin a new one.")
        : new KhalaError("unavailable", "This server fell behind. Connect again; a snapshot follows."),
    );
  }

  get #closed(): boolean {
    return this.#closing.signal.aborted;
  }

  async #beginAfter(cursor: Cursor, run: RunJson | null): Promise<void> {
    const reader = this.#reader;
    // Another server may have read further than this one.
    if (cursor.epoch === reader.epoch && cursor.seq > reader.head.seq) await reader.refresh();
    if (this.#closed) return;
    const { seq, time } = reader.head;
    const foreign =
      cursor.epoch === reader.epoch && (cursor.seq > seq || (cursor.seq === seq && cursor.time < time));
    if (foreign || cursor.epoch !== reader.epoch) {
      this.#hello(run);
      return this.#resync(foreign ? "foreign_cursor" : "deleted");
    }
    this.#position = cursor;
    this.#hello(run);
    void this.#catchUp();
  }

  #hello(run: RunJson | null): void {
    const cursor = formatCursor({ epoch: this.#reader.epoch, ...this.#position });
    this.#offer(helloFrame(this.#convId, cursor, run));
  }

  async #resync(reason: ResyncReason): Promise<void> {
    this.#metrics.resyncs.add(1, { reason });
    const transcript = await this.#reader.transcript();
    if (this.#closed) return;
    if (this.#reader.over) return this.gone(this.#reader.over);
    this.#position = this.#reader.head;
    this.#offer(resyncFrame(this.#convId, reason));
    this.#offer(snapshotFrame(this.#convId, transcript.last(), this.#reader.cursor));
    this.#goLive();
  }

  async #catchUp(): Promise<void> {
    for (let failures = 0; !this.#closed; ) {
      // Checked and done within one turn, so no entry can come in between.
      if (this.#position.seq >= this.#reader.head.seq) return this.#goLive();
      try {
        const entries = await this.#reader.after(this.#position);
        failures = 0;
        if (this.#closed) return;
        if (this.#reader.over) return this.gone(this.#reader.over);
        if (!entries) return await this.#resync("trimmed");
        for (const part of parts(entries)) {
          const frames = new TimelineFrames(part.map((entry) => this.#reader.frame(entry)));
          while (!this.#closed && !this.#member.offer(frames)) await this.#waitForRoom();
          if (this.#closed) return;
          this.#position = part.at(-1)!;
        }
      } catch (error) {
        if (!(error instanceof KhalaError))
          this.#context.log.error({ err: error }, "a replay failed and is tried again");
        const wait = backoff(failures++, this.#context.random, { base: 100, cap: 2_000 });
        await sleep(this.#context.clock, wait, this.#closing.signal);
      }
    }
  }

  /** The socket itself watches how long it is full, and closes when that is too long. */
  async #waitForRoom(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#room = resolve;
    });
    this.#room = undefined;
  }

  #goLive(): void {
    if (this.#closed) return;
    const { over } = this.#reader;
    if (over) return this.gone(over);
    this.#reader.goLive(this);
  }

  /** Live, nobody waits for a slow socket: it goes, and resumes from its cursor. */
  #offer(frame: Outgoing): void {
    if (this.#member.offer(frame)) return;
    this.#metrics.slowCloses.add(1);
    this.close();
    this.#member.end(
      new KhalaError(
        "slow_consumer",
        "This socket reads too slowly. Connect again, and resume from the last cursor.",
      ),
    );
  }
}

function* parts(entries: readonly Entry[]): Generator<readonly Entry[]> {
  let part: Entry[] = [];
  let bytes = 0;
  for (const entry of entries) {
    part.push(entry);
    bytes += entry.data.length;
    if (bytes < PART_BYTES) continue;
    yield part;
    part = [];
    bytes = 0;
  }
  if (part.length > 0) yield part;
}
