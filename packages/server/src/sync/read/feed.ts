import type { Context } from "../../kit/context.ts";
import type { WireFrame } from "../../kit/wire_frame.ts";
import type { Model } from "../model.ts";
import { Backlog } from "./backlog.ts";
import type { Bounds, JournalRow, ReadLimits } from "./journal.ts";
import type { Starts } from "./starts.ts";
import { type History, type ReaderOptions, TopicReader } from "./topic_reader.ts";
import { batchFrame, type EncodedUpdate, type Encoding, encodeUpdate, type Through } from "./update_codec.ts";
import { sees, type Viewer, Viewers } from "./viewers.ts";

/** A socket's subscription to a topic. */
export interface Subscription extends Viewer {
  /** The history that the position belongs to. */
  readonly history: Readonly<History>;
  /** Complete up to here. While live, the feed's head counts instead. */
  position: bigint;
  live: boolean;
  /** The batch that ends the replay is not sent yet. */
  replaying: boolean;
  /** Whether the subscription has ended. */
  ended: boolean;
  /** Sends a frame stamped with the viewer's rights; false when the buffer is full. It must pull later. */
  offer(frame: WireFrame): boolean;
  /** The position is stale: the client must list again. */
  stale(sent: bigint, bounds: Bounds): void;
}

/** One topic on this server: read once, encoded once, and sent to every subscribed socket. */
export class Feed {
  readonly model: Model;
  readonly #options: ReaderOptions;
  readonly #context: Context;
  readonly #live = new Viewers<Subscription>();
  readonly #backlog: Backlog;
  /** Encoded rows of shared reads: each is encoded once for all subscriptions. */
  readonly #encoded = new WeakMap<JournalRow, EncodedUpdate>();
  #reader!: TopicReader;

  private constructor(model: Model, context: Context, options: ReaderOptions) {
    this.model = model;
    this.#context = context;
    this.#options = options;
    this.#backlog = new Backlog(options.journal, model, options.batch);
  }

  /** Opens the feed at the topic's head. */
  static async open(model: Model, context: Context, options: ReaderOptions): Promise<Feed> {
    const feed = new Feed(model, context, options);
    feed.#reader = await TopicReader.open(model, context, options, {
      rows: (updates, before) => feed.#broadcast(updates, before),
      restarted: (head, bounds) => feed.#restarted(head, bounds),
    });
    await feed.refresh();
    return feed;
  }

  get history(): Readonly<History> {
    return this.#reader.history;
  }

  get epoch(): string {
    return this.history.epoch;
  }

  /** The newest watermark that this server has read. */
  get head(): bigint {
    return this.#reader.head;
  }

  /** The bounds of the last poll. */
  get bounds(): Bounds {
    return this.#reader.bounds;
  }

  get liveCount(): number {
    return this.#live.size;
  }

  /** Rows that this server has not read yet, and for how long it has made no progress. */
  lag(): { rows: bigint; stuckMs: number } {
    return this.#reader.lag();
  }

  /** Applies the result of a poll. */
  observe(epoch: string, bounds: Bounds, starts: Starts): void {
    this.#reader.observe(epoch, bounds, starts);
  }

  /** Reads new rows. Resolves when everything committed before the call is read. */
  refresh(): Promise<void> {
    return this.#reader.refresh();
  }

  /** Adds a subscription: live at once when it is at the head, otherwise it must pull. */
  follow(subscription: Subscription): void {
    if (subscription.position === this.head && !subscription.replaying) this.#goLive(subscription);
  }

  /** Ends a subscription. */
  leave(subscription: Subscription): void {
    this.#live.delete(subscription);
    subscription.live = false;
    subscription.ended = true;
  }

  #goLive(subscription: Subscription): void {
    subscription.live = true;
    this.#live.add(subscription);
  }

  #broadcast(updates: readonly EncodedUpdate[], before: bigint): void {
    if (this.#live.size === 0) return;
    const waited = this.#context.clock.now() - updates[0]!.row.insertedAt;
    this.#options.metrics.commitToPush.record(Math.max(0, waited), { topic: this.model.topic });
    let from = before;
    for (const chunk of chunks(updates, this.#options.batch)) {
      const watermark = chunk.at(-1)!.row.watermark;
      this.#broadcastChunk(chunk, { epoch: this.epoch, watermark, replayComplete: false }, from);
      from = watermark;
    }
  }

  #broadcastChunk(updates: readonly EncodedUpdate[], through: Through, from: bigint): void {
    const { topic } = this.model;
    const full: Subscription[] = [];
    let pushes = 0;
    for (const share of this.#live.split(updates)) {
      if (share.updates.every((update) => update.superseded)) continue;
      const frames = new Map<Encoding, WireFrame>();
      for (const member of share.members) {
        let frame = frames.get(member.encoding);
        if (!frame) {
          frame = batchFrame(topic, share.updates, through, member.encoding);
          frames.set(member.encoding, frame);
        }
        if (member.offer(frame)) pushes++;
        else full.push(member);
      }
    }
    for (const member of full) this.#demote(member, from);
    this.#options.metrics.pushes.add(pushes, { topic });
  }

  /** A full socket stops being live, and pulls from its position later. */
  #demote(member: Subscription, position: bigint): void {
    this.#live.delete(member);
    member.live = false;
    member.position = position;
    this.#options.metrics.retried.add(1, { topic: this.model.topic });
  }

  #restarted(head: bigint, bounds: Bounds): void {
    for (const member of [...this.#live]) {
      this.#live.delete(member);
      member.live = false;
      member.stale(head, bounds);
    }
  }

  /**
   * Sends the next batch to a subscription that is behind. Resolves true when nothing is left to pull, because it is
   * live, stale or ended, and false when there is more. A refused frame leaves its position unchanged.
   */
  async pull(subscription: Subscription): Promise<boolean> {
    const started = this.#context.clock.now();
    if (subscription.position > this.head) await this.refresh();
    const page = await this.#next(subscription);
    if (subscription.ended) return true;
    if (page === "stale" || subscription.history !== this.history) {
      subscription.stale(subscription.position, this.#boundsOfRead());
      return true;
    }
    const owed = page.through >= this.head && subscription.replaying;
    if (page.updates.length > 0 || owed) {
      if (!subscription.offer(this.#replayFrame(subscription, page, owed))) return false;
      this.#options.metrics.replayBatch.record(this.#context.clock.now() - started, {
        topic: this.model.topic,
      });
    }
    if (owed) subscription.replaying = false;
    subscription.position = page.through;
    // Checked and done in one tick, so no row arrives in between: no gap from replay to live.
    if (page.through !== this.head) return false;
    this.#goLive(subscription);
    return true;
  }

  /** The bounds, with the newest floor that a read has found. */
  #boundsOfRead(): Bounds {
    const { head, floor } = this.bounds;
    const found = this.#backlog.floor;
    return { head, floor: found > floor && found <= head ? found : floor };
  }

  #next(subscription: Subscription): Page | Promise<Page> {
    const { tail } = this.#reader;
    if (subscription.position > this.head) return "stale";
    return subscription.position >= tail.base
      ? this.#fromTail(subscription)
      : this.#fromDatabase(subscription);
  }

  #fromTail(subscription: Subscription): Page {
    const { rows, bytes } = this.#options.batch;
    const visible: EncodedUpdate[] = [];
    let through = subscription.position;
    let total = 0;
    for (const update of this.#reader.tail.after(subscription.position)) {
      if (sees(subscription, update)) {
        total += update.bytes;
        if (visible.length > 0 && (visible.length >= rows || total > bytes)) break;
        visible.push(update);
      }
      through = update.row.watermark;
    }
    return { updates: newestOnly(visible), through };
  }

  async #fromDatabase(subscription: Subscription): Promise<Page> {
    const page = await this.#backlog.read(subscription, subscription.position);
    if (page === "stale") return page;
    const { payloadBytes } = this.#options.batch;
    const updates = page.rows.map((row) => {
      const update = this.#encoded.get(row) ?? encodeUpdate(this.model.topic, row, payloadBytes);
      this.#encoded.set(row, update);
      return update;
    });
    return { updates: newestOnly(updates), through: page.through };
  }

  #replayFrame({ encoding }: Subscription, page: Exclude<Page, "stale">, replayComplete: boolean): WireFrame {
    const through = { epoch: this.epoch, watermark: page.through, replayComplete };
    return batchFrame(this.model.topic, page.updates, through, encoding);
  }
}

/** The next batch of a subscription, complete up to `through`. */
type Page = { readonly updates: readonly EncodedUpdate[]; readonly through: bigint } | "stale";

/** Keeps only the newest version of each document in a replay batch. */
function newestOnly(updates: readonly EncodedUpdate[]): EncodedUpdate[] {
  const last = new Map(updates.map((update, i) => [update.row.docKey, i]));
  return updates.filter((update, i) => last.get(update.row.docKey) === i && !update.superseded);
}

function* chunks(updates: readonly EncodedUpdate[], limits: ReadLimits): Generator<EncodedUpdate[]> {
  let chunk: EncodedUpdate[] = [];
  let bytes = 0;
  for (const update of updates) {
    if (chunk.length > 0 && (chunk.length >= limits.rows || bytes + update.bytes > limits.bytes)) {
      yield chunk;
      chunk = [];
      bytes = 0;
    }
    chunk.push(update);
    bytes += update.bytes;
  }
  if (chunk.length > 0) yield chunk;
}
