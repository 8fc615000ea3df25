import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { formatCursor } from "../log/cursor.ts";
import type { Appended, Bounds, Entry, Log, Position, Watcher } from "../log/log.ts";
import type { ConversationMetrics } from "../metrics.ts";
import { isForeign } from "./foreign.ts";
import { RecentEntries } from "./recent_entries.ts";
import {
  eventFrame,
  type OutgoingFrames,
  readEntry,
  runOf,
  type TimelineFrame,
  TimelineFrames,
} from "./timeline.ts";

/** Is called at the end of the current tick. */
interface TickListener {
  tickEnded(): void;
}

/** Calls listeners at the end of the current event-loop tick, with one `setImmediate` for all of them. */
export class EndOfTick {
  #listeners: TickListener[] = [];

  /** Calls the listener once, at the end of this tick. */
  notify(listener: TickListener): void {
    if (this.#listeners.push(listener) === 1) setImmediate(this.#ended);
  }

  readonly #ended = (): void => {
    const listeners = this.#listeners;
    this.#listeners = [];
    for (const listener of listeners) listener.tickEnded();
  };
}

/** A follower of a conversation on this server. */
export interface Follower {
  /** New entries up to `last`. */
  deliver(last: Position, frames: OutgoingFrames): void;
  /** The conversation was deleted, or entries that were not delivered yet were trimmed. */
  ended(reason: "deleted" | "trimmed"): void;
}

export interface ReaderOptions {
  readonly log: Log;
  readonly metrics: ConversationMetrics;
  readonly stream: string;
  /** The generation of the conversation: the stream's entries are of this one. */
  readonly generation: bigint;
  readonly convId: string;
  /** The size of the in-memory tail, for clients that resume soon. */
  readonly recentBytes: number;
  /** Whether the conversation was deleted. */
  readonly isDeleted: () => Promise<boolean>;
  /** Shared by all readers. */
  readonly endOfTick: EndOfTick;
}

const PAGE = { entries: 2_000, bytes: 2 << 20 };

/** The only reader of a conversation on this server: reads each entry once and delivers it to all followers. */
export class ConversationReader implements Watcher, TickListener {
  readonly #options: ReaderOptions;
  readonly #context: Context;
  readonly #live = new Set<Follower>();
  readonly #stopping = new AbortController();
  #unwatch: (() => void) | undefined;
  #epoch = "";
  #head: Position | undefined;
  #recent!: RecentEntries;
  /** Encoded frames of replayed entries, shared by followers that resume together. */
  #replayed: WeakMap<Entry, TimelineFrame> | undefined;
  #catchingUp: Promise<void> | undefined;
  #behind = false;
  /** The run in whose middle the log is at the head; empty when it is not known which. */
  #streaming: string | undefined;
  #endsInPost = false;
  #ended: "deleted" | "trimmed" | undefined;
  /** Created per batch: a long-lived array would move its entries to the old generation of the heap. */
  #unsent: Entry[] | undefined;
  #batching = false;

  private constructor(context: Context, options: ReaderOptions) {
    this.#context = context;
    this.#options = options;
  }

  /** Starts at the head of the log, before any follower is notified that it is connected. */
  static async start(context: Context, options: ReaderOptions): Promise<ConversationReader> {
    const reader = new ConversationReader(context, options);
    // Watch first, then read: an entry appended in between is found by its sequence number.
    reader.#unwatch = await options.log.watch(options.stream, reader);
    try {
      const bounds = await options.log.open(options.stream, options.generation);
      reader.#endsIn(await lastEntry(options, bounds));
      reader.#epoch = bounds.epoch;
      reader.#head = bounds.head;
      reader.#recent = new RecentEntries(bounds.head, options.recentBytes);
    } catch (error) {
      reader.stop();
      throw error;
    }
    if (reader.#behind) reader.missed();
    return reader;
  }

  /** Its position: all entries up to here are delivered to the live followers. */
  get head(): Position {
    return this.#head!;
  }

  get epoch(): string {
    return this.#epoch;
  }

  /** The cursor of the head. */
  get cursor(): string {
    return formatCursor({ epoch: this.epoch, ...this.head });
  }

  /** Why the reader ended; undefined while it runs. */
  get ended(): "deleted" | "trimmed" | undefined {
    return this.#ended;
  }

  /** Whether a follower that starts here starts in the middle of an answer. */
  get streaming(): boolean {
    return this.#streaming !== undefined;
  }

  /** Whether the entry at the head is one that somebody posted. */
  get endsInPost(): boolean {
    return this.#endsInPost;
  }

  /** Adds a follower at the head. Call it in the tick in which the follower reached the head, so that no entry is missed. */
  goLive(follower: Follower): void {
    // Entries up to the head that are not sent yet belong to the earlier followers.
    this.#send();
    this.#live.add(follower);
  }

  leave(follower: Follower): void {
    this.#live.delete(follower);
  }

  /** Whether a position is not beyond the head. `after` decides about one before it. */
  async knows({ seq, time }: Position): Promise<boolean> {
    const isBeyond = () => seq > this.head.seq || (seq === this.head.seq && time !== this.head.time);
    // It may come from a server that is ahead of this one.
    if (isBeyond()) await this.refresh();
    return !isBeyond();
  }

  /** The entries from a position to the head, from memory or from the log; undefined when some were trimmed. */
  async after(position: Position): Promise<readonly Entry[] | undefined> {
    const inMemory = this.#recent.after(position);
    if (inMemory) return inMemory;
    const { log, stream } = this.#options;
    const page = await log.read(stream, position, PAGE);
    if (page?.epoch !== this.#epoch) return this.#endReplaced();
    if (page.entries[0]?.seq !== position.seq + 1n) return undefined;
    return this.#upToHead(page.entries);
  }

  /** The position before the oldest entry that is kept; undefined without a log. */
  async oldest(): Promise<Position | undefined> {
    const [bounds] = await this.#options.log.bounds([this.#options.stream]);
    return bounds && { seq: bounds.floor, time: 0 };
  }

  /** The frame of a replayed entry. */
  frame(entry: Entry): TimelineFrame {
    this.#replayed ??= new WeakMap();
    let frame = this.#replayed.get(entry);
    if (!frame) {
      frame = this.#frame(entry);
      this.#replayed.set(entry, frame);
    }
    return frame;
  }

  /** The log may be ahead of the head: entries after it are delivered live, and must not be sent twice. */
  #upToHead(entries: readonly Entry[]): readonly Entry[] {
    return entries.filter(({ seq }) => seq <= this.head.seq);
  }

  appended({ epoch, entries }: Appended): void {
    if (!this.#head || this.#catchingUp) {
      this.#behind = true;
      return;
    }
    if (epoch !== this.#epoch) return this.missed();
    if (entries[0]?.seq === this.#head.seq + 1n) return this.#advance(entries);
    // The store lost its last writes and reuses their numbers: a later append would look contiguous.
    if (entries.some((entry) => this.#recent.contradicts(entry))) return this.#end("trimmed");
    const fresh = entries.filter(({ seq }) => seq > this.head.seq);
    if (fresh.length === 0) return;
    if (fresh[0]!.seq === this.head.seq + 1n) this.#advance(fresh);
    else this.missed();
  }

  position(): Position | undefined {
    return this.#catchingUp ? undefined : this.#head;
  }

  missed(): void {
    this.#behind = true;
    if (!this.#head || this.#stopping.signal.aborted) return;
    this.#catchingUp ??= this.#catchUp().finally(() => {
      this.#catchingUp = undefined;
      if (this.#behind) this.missed();
    });
  }

  /** Reads new entries. Resolves when everything appended before the call is delivered. */
  async refresh(): Promise<void> {
    this.missed();
    await this.#catchingUp;
  }

  stop(): void {
    this.#stopping.abort();
    this.#unwatch?.();
    this.#live.clear();
  }

  /** Reads from the head until nothing is left. A failed read is retried from the same position. */
  async #catchUp(): Promise<void> {
    const { log, stream, metrics } = this.#options;
    const { signal } = this.#stopping;
    for (let failures = 0; this.#behind && !signal.aborted; ) {
      this.#behind = false;
      try {
        metrics.gapReads.add(1);
        const page = await log.read(stream, this.head, PAGE);
        failures = 0;
        if (signal.aborted) return;
        if (page?.epoch !== this.#epoch) return await this.#endReplaced();
        // Acknowledged entries are missing: the store lost its last writes in a crash or failover.
        if (page.head.seq < this.head.seq) return this.#end("trimmed");
        const [first] = page.entries;
        if (first && first.seq !== this.head.seq + 1n) return this.#end("trimmed");
        if (!first && page.head.seq > this.head.seq) return this.#end("trimmed");
        this.#advance(page.entries);
        this.#behind ||= page.head.seq > this.head.seq;
      } catch (error) {
        this.#behind = true;
        this.#context.log.warn(
          { err: (error as Error).message, stream },
          "a conversation could not be read; retrying",
        );
        await sleep(
          this.#context.clock,
          backoff(failures++, this.#context.random, { base: 50, cap: 2_000 }),
          signal,
        );
      }
    }
  }

  /** The stream is missing, or is another one. A log that expired or was lost is not the end of its conversation. */
  async #endReplaced(): Promise<undefined> {
    this.#end((await this.#options.isDeleted()) ? "deleted" : "trimmed");
  }

  #advance(entries: readonly Entry[]): void {
    this.#options.metrics.reads.count += entries.length;
    for (const entry of entries) {
      if (isForeign(entry)) this.#noteForeign(entry);
      const { runId, ends, posted } = runOf(entry);
      // The end of another run is that of a cancelled queued message.
      if (runId !== "" && !ends) this.#streaming = runId;
      else if (ends && this.#streaming === runId) this.#streaming = undefined;
      // Without the text, to not retain it.
      this.#head = { seq: entry.seq, time: entry.time };
      this.#endsInPost = posted;
      if (this.#live.size > 0) {
        if (this.#unsent) this.#unsent.push(entry);
        else this.#unsent = [entry];
      }
      try {
        // Sockets first, then the bookkeeping.
        if (entry === entries.at(-1)) this.#sendSoon();
      } finally {
        this.#recent.add(entry);
      }
    }
  }

  /** The log ends in this entry. One without a run counts as the middle of a run. */
  #endsIn(last: Entry | undefined): void {
    if (!last) return;
    const { runId, ends, posted } = runOf(last);
    this.#streaming = ends ? undefined : runId;
    this.#endsInPost = posted;
  }

  #noteForeign(entry: Entry): void {
    if (Object.keys(readEntry(entry).event).length > 0) return;
    const { stream } = this.#options;
    this.#context.log.warn(
      { stream, seq: String(entry.seq) },
      "a record that another program added to the stream is not an event and was set aside",
    );
  }

  /** Sends the first entry at once, and the others of this tick in one write at its end. */
  #sendSoon(): void {
    if (this.#batching || !this.#unsent) return;
    this.#send();
    this.#batching = true;
    this.#options.endOfTick.notify(this);
  }

  tickEnded(): void {
    this.#batching = false;
    this.#sendSoon();
  }

  #send(): void {
    const entries = this.#unsent;
    if (!entries) return;
    this.#unsent = undefined;
    const frames =
      entries.length === 1
        ? this.#frame(entries[0]!)
        : new TimelineFrames(entries.map((entry) => this.#frame(entry)));
    this.#options.metrics.broadcasts.count += entries.length * this.#live.size;
    for (const follower of this.#live) follower.deliver(this.head, frames);
  }

  #frame(entry: Entry): TimelineFrame {
    return eventFrame(this.#options.convId, this.#epoch, entry);
  }

  #end(reason: "deleted" | "trimmed"): void {
    if (this.#ended) return;
    this.#ended = reason;
    this.#stopping.abort();
    this.#unwatch?.();
    this.#send();
    for (const follower of [...this.#live]) follower.ended(reason);
    this.#live.clear();
  }
}

/** The last entry, if there is one. */
async function lastEntry({ log, stream }: ReaderOptions, { head }: Bounds): Promise<Entry | undefined> {
  if (head.seq === 0n) return undefined;
  const page = await log.read(stream, { ...head, seq: head.seq - 1n }, { entries: 1, bytes: PAGE.bytes });
  return page?.entries[0];
}
