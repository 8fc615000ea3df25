import type { Context } from "../../kit/context.ts";
import { recordSpan } from "../../kit/telemetry.ts";
import type { SyncMetrics } from "../metrics.ts";
import type { Model } from "../model.ts";
import type { Bounds, Journal, JournalRow, ReadLimits } from "./journal.ts";
import type { Starts } from "./starts.ts";
import { type EncodedUpdate, encodeUpdate } from "./update_codec.ts";

export interface ReaderOptions {
  readonly journal: Journal;
  readonly metrics: SyncMetrics;
  readonly batch: ReadLimits;
  readonly tailBytes: number;
}

/** The history that positions belong to. Its epoch changes with each start; after a restore there is another history. */
export interface History {
  epoch: string;
}

/** Callbacks of the reader. */
export interface ReaderEvents {
  /** New rows, in order; `before` is the position that they follow. */
  rows(updates: readonly EncodedUpdate[], before: bigint): void;
  /** Positions up to `head` are stale: a new epoch began, or retention removed unread rows. */
  restarted(head: bigint, bounds: Bounds): void;
}

/** Limits of a read of all rows. */
const READ = { rows: 1_000, bytes: 8 << 20 };
/** How far back the tail starts, so that clients that reconnect after a restart are served from memory. */
const WARM_ROWS = 1_000n;

/** Reads one topic's journal once for the whole server, and keeps its newest rows in memory. */
export class TopicReader {
  readonly #model: Model;
  readonly #options: ReaderOptions;
  readonly #context: Context;
  readonly #events: ReaderEvents;
  #tail: HotTail;
  #history: History;
  #bounds: Bounds;
  /** Up to here rows were there before: they are kept in memory, and were pushed by others, perhaps days ago. */
  readonly #old: bigint;
  #refreshing: Promise<void> | undefined;
  #dirty = false;
  /** When the tail last advanced or was up to date. */
  #movedAt: number;

  private constructor(
    model: Model,
    context: Context,
    options: ReaderOptions,
    events: ReaderEvents,
    epoch: string,
    bounds: Bounds,
  ) {
    this.#model = model;
    this.#context = context;
    this.#options = options;
    this.#events = events;
    this.#history = { epoch };
    this.#bounds = bounds;
    this.#old = bounds.head;
    const warm = bounds.head - WARM_ROWS;
    this.#tail = new HotTail(warm > bounds.floor ? warm : bounds.floor, options.tailBytes);
    this.#movedAt = context.clock.now();
  }

  /** Opens the reader shortly before the topic's head: the first refresh brings the last rows into memory. */
  static async open(
    model: Model,
    context: Context,
    options: ReaderOptions,
    events: ReaderEvents,
  ): Promise<TopicReader> {
    const { epoch, topics } = await options.journal.heads();
    const bounds = topics.get(model.topic) ?? { head: 0n, floor: 0n, partsFloor: 0n };
    return new TopicReader(model, context, options, events, epoch, bounds);
  }

  get history(): History {
    return this.#history;
  }

  get tail(): HotTail {
    return this.#tail;
  }

  /** The newest watermark that this server has read. */
  get head(): bigint {
    return this.#tail.head;
  }

  /** The bounds of the last poll. */
  get bounds(): Bounds {
    const { head, floor, partsFloor } = this.#bounds;
    return { floor, partsFloor, head: head > this.head ? head : this.head };
  }

  /** Rows that this server has not read yet, and for how long it has made no progress. */
  lag(): { rows: bigint; stuckMs: number } {
    const rows = this.bounds.head - this.head;
    return { rows, stuckMs: rows > 0n ? this.#context.clock.now() - this.#movedAt : 0 };
  }

  /** Applies the result of a poll. A history that does not contain what was read restarts the reader. */
  observe(epoch: string, bounds: Bounds, starts: Starts): void {
    if (!starts.covers(this.#history.epoch, this.#model.topic, this.head)) {
      this.#history = { epoch };
      return this.#restart(bounds, bounds.head);
    }
    this.#history.epoch = epoch;
    // Above the floor nothing may be left to read that would show the gap.
    if (bounds.floor > this.head) return this.#restart(bounds, bounds.head);
    if (this.lag().rows === 0n) this.#movedAt = this.#context.clock.now();
    this.#bounds = bounds;
    if (bounds.head === this.head) return;
    const { log } = this.#context;
    this.refresh().catch((error) =>
      log.debug(
        { err: error.message, topic: this.#model.topic },
        "a polled read failed; the next poll repeats it",
      ),
    );
  }

  /** Reads new rows. Resolves when everything committed before the call is read. */
  refresh(): Promise<void> {
    this.#dirty = true;
    this.#refreshing ??= this.#read();
    return this.#refreshing;
  }

  async #read(): Promise<void> {
    try {
      while (this.#dirty) {
        this.#dirty = false;
        await this.#readOnce();
      }
    } finally {
      // In the same turn as the last check of `dirty`: a request from now on starts a new read.
      this.#refreshing = undefined;
    }
  }

  async #readOnce(): Promise<void> {
    const { journal, batch } = this.#options;
    const tail = this.#tail;
    const rows = await journal.read(this.#model, tail.head, { ...READ, payloadBytes: batch.payloadBytes });
    if (rows.length === 0 || tail !== this.#tail) return;
    this.#ingest(rows);
    const bytes = rows.reduce((sum, row) => sum + (row.payload?.length ?? 0), 0);
    this.#dirty ||= rows.length === READ.rows || bytes > READ.bytes / 2 || this.head < this.#bounds.head;
  }

  #ingest(rows: readonly JournalRow[]): void {
    const { metrics, batch } = this.#options;
    const floor = rows[0]!.watermark - 1n;
    // Watermarks are dense: if the next one is missing, retention took it, and live viewers have a gap.
    if (floor !== this.head) this.#restart({ floor, partsFloor: floor, head: this.bounds.head }, floor);
    const updates = rows.map((row) => encodeUpdate(this.#model.topic, row, batch.payloadBytes));
    const before = this.head;
    this.#tail.append(updates);
    this.#movedAt = this.#context.clock.now();
    metrics.updates.add(rows.length, { topic: this.#model.topic });
    this.#events.rows(updates, before);
    for (const row of rows) if (row.watermark > this.#old) this.#trace(row);
  }

  #trace(row: JournalRow): void {
    const { topic } = this.#model;
    recordSpan(this.#context.telemetry, row.trace, {
      name: `push ${topic}`,
      from: row.insertedAt,
      to: this.#context.clock.now(),
      org: row.org,
      attributes: {
        "khala.topic": topic,
        "khala.doc_key": row.docKey,
        "khala.watermark": String(row.watermark),
      },
    });
  }

  #restart(bounds: Bounds, position: bigint): void {
    const { head } = this;
    this.#bounds = bounds;
    this.#tail = new HotTail(position, this.#options.tailBytes);
    this.#events.restarted(head, bounds);
  }
}

/** The newest rows of a topic, encoded, within a byte limit. Watermarks are dense, so a position is an index. */
export class HotTail {
  readonly #maxBytes: number;
  #rows: (EncodedUpdate | undefined)[] = [];
  #skipped = 0;
  #bytes = 0;
  #base: bigint;

  /** Starts empty at a position. */
  constructor(position: bigint, maxBytes: number) {
    this.#base = position;
    this.#maxBytes = maxBytes;
  }

  /** The lowest position that can be resumed from memory. */
  get base(): bigint {
    return this.#base + BigInt(this.#skipped);
  }

  /** The newest watermark. */
  get head(): bigint {
    return this.#base + BigInt(this.#rows.length);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Adds the rows that follow the head. */
  append(rows: readonly EncodedUpdate[]): void {
    for (const row of rows) {
      this.#rows.push(row);
      this.#bytes += row.heldBytes;
    }
    while (this.#bytes > this.#maxBytes && this.#skipped < this.#rows.length) {
      this.#bytes -= this.#rows[this.#skipped]!.heldBytes;
      this.#rows[this.#skipped++] = undefined;
    }
    // Dropped rows are removed from the array in blocks, which is cheaper than one at a time.
    if (this.#skipped > 1_024 && this.#skipped * 2 > this.#rows.length) {
      this.#rows = this.#rows.slice(this.#skipped);
      this.#base += BigInt(this.#skipped);
      this.#skipped = 0;
    }
  }

  /** The rows after a position that is in memory, oldest first. */
  *after(position: bigint): Generator<EncodedUpdate> {
    for (let i = Number(position - this.#base); i < this.#rows.length; i++) yield this.#rows[i]!;
  }
}
