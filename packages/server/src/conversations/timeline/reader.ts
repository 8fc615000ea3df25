import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { formatCursor } from "../log/cursor.ts";
import type { Bounds, Entry, Log, News, Page, Position, Watcher } from "../log/log.ts";
import type { ConversationMetrics } from "../metrics.ts";
import { Recent } from "./recent.ts";
import {
  eventFrame,
  type Outgoing,
  readEntry,
  runOf,
  type TimelineFrame,
  TimelineFrames,
} from "./timeline.ts";
import { Transcript } from "./transcript.ts";
import type { Turn, TurnTaker } from "./turn.ts";

/** Who follows a conversation on this server. */
export interface Follower {
  /** New entries, up to this one. Called only while it is live. */
  live(last: Position, frames: Outgoing): void;
  /** The conversation was deleted, or what this server had read was trimmed away. */
  gone(reason: "deleted" | "trimmed"): void;
}

export interface ReaderOptions {
  readonly log: Log;
  readonly metrics: ConversationMetrics;
  /** `chat:<conv_id>` */
  readonly stream: string;
  readonly convId: string;
  /** What it keeps in memory for those who come back soon. */
  readonly recentBytes: number;
  /** Shared by all readers. */
  readonly turn: Turn;
}

/** Before every entry. */
const BEGINNING: Position = { seq: 0n, time: 0 };
const PAGE = { entries: 2_000, bytes: 2 << 20 };

/** The one reader of a conversation on this server: reads each entry once, and gives it to all who follow. */
export class ConversationReader implements Watcher, TurnTaker {
  readonly #options: ReaderOptions;
  readonly #context: Context;
  readonly #live = new Set<Follower>();
  readonly #stopping = new AbortController();
  #unwatch: (() => void) | undefined;
  #epoch = "";
  #head: Position | undefined;
  #recent!: Recent;
  /** Frames of what was asked for again, for the next one who asks. */
  #replayed: WeakMap<Entry, TimelineFrame> | undefined;
  #transcript: Transcript | undefined;
  #filling: Promise<void> | undefined;
  #behind = false;
  /** Whether the log, up to the head, is in the middle of a run. */
  #streaming = false;
  #over: "deleted" | "trimmed" | undefined;
  /** Made when there is something: an array that was here for long would make all that it held outlive the moment. */
  #unsent: Entry[] | undefined;
  #gathering = false;

  private constructor(context: Context, options: ReaderOptions) {
    this.#context = context;
    this.#options = options;
  }

  /** Starts at the end of the log, which is resolved once, before anybody is told that they are connected. */
  static async start(context: Context, options: ReaderOptions): Promise<ConversationReader> {
    const reader = new ConversationReader(context, options);
    // Heard first, read second: what is appended in between is found by its sequence.
    reader.#unwatch = await options.log.watch(options.stream, reader);
    try {
      const bounds = await options.log.open(options.stream);
      reader.#streaming = await endsInARun(options, bounds);
      reader.#epoch = bounds.epoch;
      reader.#head = bounds.head;
      reader.#recent = new Recent(bounds.head, options.recentBytes);
    } catch (error) {
      reader.stop();
      throw error;
    }
    if (reader.#behind) reader.missed();
    return reader;
  }

  /** Where it is: everything up to here was given to those who are live. */
  get head(): Position {
    return this.#head!;
  }

  get epoch(): string {
    return this.#epoch;
  }

  /** The cursor of its position. */
  get cursor(): string {
    return formatCursor({ epoch: this.epoch, ...this.head });
  }

  /** Why it can go on no more; undefined while it can. */
  get over(): "deleted" | "trimmed" | undefined {
    return this.#over;
  }

  /** Whether somebody who begins here would begin in the middle of an answer. */
  get streaming(): boolean {
    return this.#transcript ? this.#transcript.running !== undefined : this.#streaming;
  }

  /** How many are live. */
  get followers(): number {
    return this.#live.size;
  }

  /** Takes a follower on from the head. In the turn in which it reached the head, nothing can come in between. */
  goLive(follower: Follower): void {
    // What is up to the head and not yet sent is for those who were here before.
    this.#send();
    this.#live.add(follower);
  }

  leave(follower: Follower): void {
    this.#live.delete(follower);
  }

  /** The entries after a position up to the head, from memory or from the log; undefined when they are not all there any more. */
  async after(position: Position): Promise<readonly Entry[] | undefined> {
    const inMemory = this.#recent.after(position);
    if (inMemory) return inMemory;
    const { log, stream } = this.#options;
    const page = await log.read(stream, position, PAGE);
    if (!this.#same(page) || page.entries[0]?.seq !== position.seq + 1n) return undefined;
    return this.#known(page.entries);
  }

  /** What an entry that is sent again is on a socket. */
  frame(entry: Entry): TimelineFrame {
    this.#replayed ??= new WeakMap();
    let frame = this.#replayed.get(entry);
    if (!frame) {
      frame = this.#frame(entry);
      this.#replayed.set(entry, frame);
    }
    return frame;
  }

  /** The log may be ahead of what was given out: whoever is told of more would be told twice. */
  #known(entries: readonly Entry[]): readonly Entry[] {
    return entries.filter(({ seq }) => seq <= this.head.seq);
  }

  /** What the conversation comes to at the head. Awaited, it is true until the caller waits again. */
  async transcript(): Promise<Transcript> {
    if (this.#transcript) return this.#transcript;
    const { log, stream } = this.#options;
    let transcript = new Transcript();
    let position: Position = BEGINNING;
    // The check and the hand-over happen in one turn: from there on every new entry is added as it comes.
    while (!this.#transcript && position.seq < this.head.seq) {
      const items = this.#recent.after(position);
      const page = items ? undefined : await log.read(stream, position, PAGE);
      if (!items && !this.#same(page)) break;
      const entries = items ?? this.#known(page?.entries ?? []);
      if (position !== BEGINNING && entries[0] && entries[0].seq !== position.seq + 1n) {
        // Trimmed while we read: what is left is what there is.
        transcript = new Transcript();
      }
      if (entries.length === 0) break;
      for (const entry of entries) transcript.add(readEntry(entry));
      position = entries.at(-1)!;
    }
    this.#transcript ??= transcript;
    return this.#transcript;
  }

  news({ epoch, entries }: News): void {
    if (!this.#head || this.#filling) {
      this.#behind = true;
      return;
    }
    if (epoch !== this.#epoch) return this.missed();
    if (entries[0]?.seq === this.#head.seq + 1n) return this.#take(entries);
    // A number that is given again, by a store that lost its last moments: its next news would look as if nothing was missed.
    if (entries.some((entry) => this.#recent.contradicts(entry))) return this.#end("trimmed");
    const fresh = entries.filter(({ seq }) => seq > this.head.seq);
    if (fresh.length === 0) return;
    if (fresh[0]!.seq === this.head.seq + 1n) this.#take(fresh);
    else this.missed();
  }

  position(): Position | undefined {
    return this.#filling ? undefined : this.#head;
  }

  missed(): void {
    this.#behind = true;
    if (!this.#head || this.#stopping.signal.aborted) return;
    this.#filling ??= this.#fill().finally(() => {
      this.#filling = undefined;
      if (this.#behind) this.missed();
    });
  }

  /** Reads what is new. Resolves when everything that was appended before the call is given out. */
  async refresh(): Promise<void> {
    this.missed();
    await this.#filling;
  }

  stop(): void {
    this.#stopping.abort();
    this.#unwatch?.();
    this.#live.clear();
  }

  /** Reads from where it is until nothing is left; a failed read is tried again from the same place. */
  async #fill(): Promise<void> {
    const { log, stream, metrics } = this.#options;
    const { signal } = this.#stopping;
    for (let failures = 0; this.#behind && !signal.aborted; ) {
      this.#behind = false;
      try {
        metrics.gapReads.add(1);
        const page = await log.read(stream, this.head, PAGE);
        failures = 0;
        if (signal.aborted) return;
        if (!this.#same(page)) return;
        // What was acknowledged is gone: the store lost its last moments, in a crash or a failover.
        if (page.head.seq < this.head.seq) return this.#end("trimmed");
        const [first] = page.entries;
        if (first && first.seq !== this.head.seq + 1n) return this.#end("trimmed");
        if (!first && page.head.seq > this.head.seq) return this.#end("trimmed");
        this.#take(page.entries);
        this.#behind ||= page.head.seq > this.head.seq;
      } catch (error) {
        this.#behind = true;
        this.#context.log.warn(
          { err: (error as Error).message, stream },
          "a conversation could not be read and is tried again",
        );
        await sleep(
          this.#context.clock,
          backoff(failures++, this.#context.random, { base: 50, cap: 2_000 }),
          signal,
        );
      }
    }
  }

  /** Whether the log is still the one that was begun with; if not, this reader is over. */
  #same(page: Page | undefined): page is Page {
    if (page?.epoch === this.epoch) return true;
    this.#end("deleted");
    return false;
  }

  #take(entries: readonly Entry[]): void {
    this.#options.metrics.reads.count += entries.length;
    for (const entry of entries) {
      const { runId, ends } = runOf(entry);
      if (runId !== "") this.#streaming = !ends;
      // Without its text, which would outlive the moment.
      this.#head = { seq: entry.seq, time: entry.time };
      if (this.#live.size > 0) {
        if (this.#unsent) this.#unsent.push(entry);
        else this.#unsent = [entry];
      }
      try {
        // Sockets come first, whatever else is to be done with it.
        if (entry === entries.at(-1)) this.#sendSoon();
      } finally {
        this.#recent.add(entry);
        this.#transcript?.add(readEntry(entry));
      }
    }
  }

  /** The first entry goes at once; what comes within the same turn of the event loop goes in one write after it. */
  #sendSoon(): void {
    if (this.#gathering || !this.#unsent) return;
    this.#send();
    this.#gathering = true;
    this.#options.turn.end(this);
  }

  turned(): void {
    this.#gathering = false;
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
    for (const follower of this.#live) follower.live(this.head, frames);
  }

  #frame(entry: Entry): TimelineFrame {
    return eventFrame(this.#options.convId, this.#epoch, entry);
  }

  #end(reason: "deleted" | "trimmed"): void {
    if (this.#over) return;
    this.#over = reason;
    this.#stopping.abort();
    this.#unwatch?.();
    this.#send();
    for (const follower of [...this.#live]) follower.gone(reason);
    this.#live.clear();
  }
}

/** The last entry tells; one that belongs to no run does not, and is taken for the middle of one. */
async function endsInARun({ log, stream }: ReaderOptions, { head }: Bounds): Promise<boolean> {
  if (head.seq === 0n) return false;
  const page = await log.read(stream, { ...head, seq: head.seq - 1n }, { entries: 1, bytes: PAGE.bytes });
  const last = page?.entries[0];
  return last !== undefined && !runOf(last).ends;
}
