import type { Context } from "../../kit/context.ts";
import type { WireFrame } from "../../kit/wire_frame.ts";
import type { Model } from "../model.ts";
import { partName, type TopicPart } from "../part.ts";
import { Backlog } from "./backlog.ts";
import type { Bounds, JournalRow, ReadLimits } from "./journal.ts";
import { inPart, isInUnknownParts, type PartViewer, PartViewers } from "./part_viewers.ts";
import type { Starts } from "./starts.ts";
import { type History, type ReaderOptions, TopicReader } from "./topic_reader.ts";
import { batchFrame, type EncodedUpdate, type Encoding, encodeUpdate, type Through } from "./update_codec.ts";
import { sees, Viewers } from "./viewers.ts";

/** A socket's subscription to a topic, or to a part of it. */
export interface Subscription extends PartViewer {
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
  readonly #liveInParts: PartViewers<Subscription>;
  readonly #backlog: Backlog;
  /** Encoded rows of shared reads: each is encoded once for all subscriptions. */
  readonly #encoded = new WeakMap<JournalRow, EncodedUpdate>();
  #reader!: TopicReader;

  private constructor(model: Model, context: Context, options: ReaderOptions) {
    this.model = model;
    this.#context = context;
    this.#options = options;
    this.#liveInParts = new PartViewers(model);
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
    return this.#live.size + this.#liveInParts.size;
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
    this.#setLive(subscription, false);
    subscription.ended = true;
  }

  #goLive(subscription: Subscription): void {
    this.#setLive(subscription, true);
  }

  #setLive(subscription: Subscription, live: boolean): void {
    subscription.live = live;
    const how = live ? "add" : "delete";
    if (isInPart(subscription)) this.#liveInParts[how](subscription);
    else this.#live[how](subscription);
  }

  #broadcast(updates: readonly EncodedUpdate[], before: bigint): void {
    this.#endUnknownParts(updates, before);
    if (this.liveCount === 0) return;
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
    this.#send(this.model.topic, this.#live, updates, through, from);
    if (this.#liveInParts.size === 0) return;
    for (const { name, viewers, updates: own } of this.#liveInParts.split(updates))
      this.#send(name, viewers, own, through, from);
  }

  /** Sends rows to those who see them, under the name of the topic or the part that they follow. */
  #send(
    name: string,
    viewers: Viewers<Subscription>,
    updates: readonly EncodedUpdate[],
    through: Through,
    from: bigint,
  ): void {
    const full: Subscription[] = [];
    let pushes = 0;
    for (const share of viewers.split(updates)) {
      if (share.updates.every((update) => update.superseded)) continue;
      const frames = new Map<Encoding, WireFrame>();
      for (const member of share.members) {
        let frame = frames.get(member.encoding);
        if (!frame) {
          frame = batchFrame(name, share.updates, through, member.encoding);
          frames.set(member.encoding, frame);
        }
        if (member.offer(frame)) pushes++;
        else full.push(member);
      }
    }
    for (const member of full) this.#demote(member, from);
    this.#options.metrics.pushes.add(pushes, { topic: this.model.topic });
  }

  /** Rows of which the parts are unknown may be for any part: those who follow one must list again. */
  #endUnknownParts(updates: readonly EncodedUpdate[], before: bigint): void {
    if (this.#liveInParts.size === 0 || this.model.by.length === 0) return;
    const unknown = updates.find(({ row }) => !row.parts);
    if (!unknown) return;
    for (const member of [...this.#liveInParts]) {
      if (!member.part || !isInUnknownParts(unknown.row, member.part)) continue;
      this.#setLive(member, false);
      member.stale(before, this.bounds);
    }
  }

  /** A full socket stops being live, and pulls from its position later. */
  #demote(member: Subscription, position: bigint): void {
    this.#setLive(member, false);
    member.position = position;
    this.#options.metrics.retried.add(1, { topic: this.model.topic });
  }

  #restarted(head: bigint, bounds: Bounds): void {
    for (const member of [...this.#live, ...this.#liveInParts]) {
      this.#setLive(member, false);
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
    const { head, floor, partsFloor } = this.bounds;
    const found = this.#backlog.floors;
    const newest = (known: bigint, read: bigint) => (read > known && read <= head ? read : known);
    return { head, floor: newest(floor, found.floor), partsFloor: newest(partsFloor, found.partsFloor) };
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
    const { part } = subscription;
    for (const update of this.#reader.tail.after(subscription.position)) {
      if (part && this.model.by.length > 0 && isInUnknownParts(update.row, part)) return "stale";
      const shown = part ? inPart(this.model.topic, update, part) : update;
      if (shown && sees(subscription, shown)) {
        total += shown.bytes;
        if (visible.length > 0 && (visible.length >= rows || total > bytes)) break;
        visible.push(shown);
      }
      through = update.row.watermark;
    }
    return { updates: newestOnly(visible), through };
  }

  async #fromDatabase(subscription: Subscription): Promise<Page> {
    const page = await this.#backlog.read(subscription, subscription.position);
    if (page === "stale") return page;
    const { payloadBytes } = this.#options.batch;
    const { part } = subscription;
    const updates = page.rows.flatMap((row) => {
      const update = this.#encoded.get(row) ?? encodeUpdate(this.model.topic, row, payloadBytes);
      this.#encoded.set(row, update);
      return part ? (inPart(this.model.topic, update, part) ?? []) : update;
    });
    return { updates: newestOnly(updates), through: page.through };
  }

  #replayFrame(
    { encoding, part }: Subscription,
    page: Exclude<Page, "stale">,
    replayComplete: boolean,
  ): WireFrame {
    const through = { epoch: this.epoch, watermark: page.through, replayComplete };
    const { topic } = this.model;
    return batchFrame(part ? partName(topic, part) : topic, page.updates, through, encoding);
  }
}

function isInPart(subscription: Subscription): subscription is Subscription & { readonly part: TopicPart } {
  return subscription.part !== undefined;
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
