import { KhalaError } from "@khala/contracts";
import type { QueuedMessageJson, RunJson } from "@khala/contracts/conversation/v1";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { ConversationRef } from "../conversation.ts";
import { type Cursor, formatCursor } from "../log/cursor.ts";
import type { Entry, Position } from "../log/log.ts";
import type { ConversationMetrics } from "../metrics.ts";
import type { CurrentRuns } from "../store.ts";
import type { ConversationReader, Follower } from "./reader.ts";
import { activeRun, type Snapshot } from "./snapshot.ts";
import {
  heartbeatFrame,
  helloFrame,
  type OutgoingFrames,
  type ResyncReason,
  resyncFrame,
  snapshotFrame,
  TimelineFrames,
} from "./timeline.ts";

/** The size of one replay write. */
const CHUNK_BYTES = 64 << 10;

/** The start of a socket: now, after a cursor, or with the last messages. */
export type StartPosition =
  | { readonly kind: "now" }
  | { readonly kind: "after"; readonly cursor: Cursor }
  | { readonly kind: "replay"; readonly messages: number };

/** A socket that follows a conversation. */
export interface TimelineSubscriber {
  /** Queues a frame; false when the outbox is full. */
  offer(frame: OutgoingFrames): boolean;
  /** Closes the socket with this error. */
  end(error: KhalaError): void;
}

/** Loads the newest messages at the reader's head: the given number, or a page. See loadSnapshot. */
export type LoadSnapshot = (messages?: number) => Promise<Snapshot | undefined>;

/** One socket's subscription to a conversation: replays the backlog, then goes live without a gap. */
export class Attachment implements Follower {
  readonly #conversation: ConversationRef;
  readonly #convId: string;
  readonly #load: LoadSnapshot;
  #readRuns: () => Promise<CurrentRuns> = async () => ({ run: null, queued: [] });
  readonly #reader: ConversationReader;
  readonly #subscriber: TimelineSubscriber;
  readonly #context: Context;
  readonly #metrics: ConversationMetrics;
  readonly #closing = new AbortController();
  #position: Position;
  #resumeReplay: (() => void) | undefined;
  #queued: QueuedMessageJson[] = [];

  constructor(
    conversation: ConversationRef,
    reader: ConversationReader,
    load: LoadSnapshot,
    subscriber: TimelineSubscriber,
    context: Context,
    metrics: ConversationMetrics,
  ) {
    this.#conversation = conversation;
    this.#convId = conversation.convId;
    this.#load = load;
    this.#reader = reader;
    this.#subscriber = subscriber;
    this.#context = context;
    this.#metrics = metrics;
    this.#position = reader.head;
  }

  /** Sends `hello` and starts the replay, if any. `readRuns` reads the active run, and those that are queued. */
  async begin(start: StartPosition, readRuns: () => Promise<CurrentRuns>): Promise<void> {
    this.#readRuns = readRuns;
    const { run, queued } = await readRuns();
    if (this.#closed) return;
    this.#queued = queued;
    if (start.kind !== "now") this.#metrics.replays.add(1);
    if (start.kind === "after") return this.#beginAfter(start.cursor, run);
    // The log decides, not the run's row: this reader may not have read the run's end yet. A log that replaces a lost one
    // may have nothing of the run so far.
    if (start.kind === "now" && !this.#reader.streaming && !run) {
      this.#hello(run);
      return this.#goLive();
    }
    // A socket that joins during an answer gets the part so far.
    const loaded = await this.#loadWithRun(run, start.kind === "replay" ? start.messages : 0);
    if (!loaded) return;
    const { snapshot, cursor } = loaded;
    const messages = start.kind === "replay" ? snapshot.messages : snapshot.current;
    this.#hello(loaded.run);
    if (start.kind === "replay" || messages.length > 0)
      this.#offer(snapshotFrame(this.#convId, messages, cursor));
    void this.#catchUp();
  }

  /** The outbox has drained: the replay continues. */
  drained(): void {
    this.#resumeReplay?.();
  }

  /** Sends a heartbeat with the current cursor. */
  heartbeat(): void {
    const cursor = formatCursor({ epoch: this.#reader.epoch, ...this.#position });
    this.#subscriber.offer(heartbeatFrame(this.#convId, cursor));
  }

  close(): void {
    this.#closing.abort();
    this.#reader.leave(this);
    this.#resumeReplay?.();
  }

  deliver(last: Position, frames: OutgoingFrames): void {
    this.#position = last;
    this.#offer(frames);
  }

  ended(reason: "deleted" | "trimmed"): void {
    this.#metrics.resyncs.add(1, { reason });
    this.#subscriber.offer(resyncFrame(this.#convId, reason));
    this.close();
    this.#subscriber.end(
      reason === "deleted"
        ? new KhalaError("not_found", "The conversation was deleted. Connect again to start a new one.")
        : new KhalaError(
            "unavailable",
            "Entries were deleted before this server read them. Connect again to get a snapshot.",
          ),
    );
  }

  get #closed(): boolean {
    return this.#closing.signal.aborted;
  }

  async #beginAfter(cursor: Cursor, run: RunJson | null): Promise<void> {
    const reader = this.#reader;
    const foreign = cursor.epoch === reader.epoch && !(await reader.knows(cursor));
    if (this.#closed) return;
    if (foreign || cursor.epoch !== reader.epoch) {
      return this.#resync(foreign ? "foreign_cursor" : this.#wasDeleted(cursor) ? "deleted" : "trimmed", {
        run,
      });
    }
    // Later entries say themselves what becomes of the run.
    const isLast = cursor.seq === reader.head.seq;
    const loaded = run && isLast ? await this.#loadWithRun(run, 0) : { run };
    if (!loaded || this.#closed) return;
    this.#position = cursor;
    this.#hello(loaded.run);
    void this.#catchUp();
  }

  /**
   * Loads a snapshot, moves to its position, and reads the run again: one that began to wait, or ended, after it was read may
   * have done so before the snapshot. Undefined when this has ended.
   */
  async #loadWithRun(run: RunJson | null, count?: number) {
    const snapshot = await this.#load(count);
    if (this.#closed) return undefined;
    if (!snapshot) {
      this.ended(this.#reader.ended!);
      return undefined;
    }
    this.#position = this.#reader.head;
    const { cursor } = this.#reader;
    const stored = run?.status === "running" ? (await this.#readRuns()).run : run;
    if (this.#closed) return undefined;
    return { snapshot, cursor, run: stored && activeRun(stored, snapshot) };
  }

  /** Whether a cursor of another log is of an earlier conversation of this name, whose generation is the time of its creation. */
  #wasDeleted({ time }: Cursor): boolean {
    return BigInt(time) * 1_000n < this.#conversation.generation;
  }

  #hello(run: RunJson | null): void {
    const cursor = formatCursor({ epoch: this.#reader.epoch, ...this.#position });
    this.#offer(helloFrame(this.#convId, cursor, run, this.#queued));
    this.#queued = [];
  }

  /** Sends a snapshot, after `hello` if it was not sent yet. */
  async #resync(reason: ResyncReason, hello?: { readonly run: RunJson | null }): Promise<void> {
    this.#metrics.resyncs.add(1, { reason });
    const loaded = await this.#loadWithRun(hello?.run ?? null);
    if (!loaded) return;
    if (hello) this.#hello(loaded.run);
    this.#offer(resyncFrame(this.#convId, reason));
    this.#offer(snapshotFrame(this.#convId, loaded.snapshot.messages, loaded.cursor));
    void this.#catchUp();
  }

  async #catchUp(): Promise<void> {
    for (let failures = 0; !this.#closed; ) {
      // Check and subscription happen in one tick, so no entry is missed.
      if (this.#position.seq >= this.#reader.head.seq) return this.#goLive();
      try {
        const entries = await this.#reader.after(this.#position);
        failures = 0;
        if (this.#closed) return;
        if (this.#reader.ended) return this.ended(this.#reader.ended);
        if (!entries) return await this.#resync("trimmed");
        for (const chunk of chunks(entries)) {
          const frames = new TimelineFrames(chunk.map((entry) => this.#reader.frame(entry)));
          while (!this.#closed && !this.#subscriber.offer(frames)) await this.#waitForDrain();
          if (this.#closed) return;
          this.#position = chunk.at(-1)!;
        }
      } catch (error) {
        if (!(error instanceof KhalaError))
          this.#context.log.error({ err: error }, "a replay failed; retrying");
        const wait = backoff(failures++, this.#context.random, { base: 100, cap: 2_000 });
        await sleep(this.#context.clock, wait, this.#closing.signal);
      }
    }
  }

  /** The socket closes itself when its outbox stays full for too long. */
  async #waitForDrain(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#resumeReplay = resolve;
    });
    this.#resumeReplay = undefined;
  }

  #goLive(): void {
    if (this.#closed) return;
    const { ended } = this.#reader;
    if (ended) return this.ended(ended);
    this.#reader.goLive(this);
  }

  /** A live socket with a full outbox is closed, and resumes from its cursor. */
  #offer(frame: OutgoingFrames): void {
    if (this.#subscriber.offer(frame)) return;
    this.#metrics.slowCloses.add(1);
    this.close();
    this.#subscriber.end(
      new KhalaError(
        "slow_consumer",
        "This socket reads too slowly. Connect again, and resume from the last cursor.",
      ),
    );
  }
}

function* chunks(entries: readonly Entry[]): Generator<readonly Entry[]> {
  let chunk: Entry[] = [];
  let bytes = 0;
  for (const entry of entries) {
    chunk.push(entry);
    bytes += entry.data.length;
    if (bytes < CHUNK_BYTES) continue;
    yield chunk;
    chunk = [];
    bytes = 0;
  }
  if (chunk.length > 0) yield chunk;
}
