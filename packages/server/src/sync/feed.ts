import type { Context } from "../kit/context.ts";
import { recordSpan } from "../kit/telemetry.ts";
import { Backlog } from "./backlog.ts";
import { HotTail } from "./hot_tail.ts";
import type { Bounds, Journal, JournalRow, ReadLimits } from "./journal.ts";
import type { SyncMetrics } from "./metrics.ts";
import type { Model } from "./model.ts";
import {
  type EncodedUpdate,
  encodeUpdate,
  type Frame,
  ownBatch,
  sharedBatch,
  type Through,
} from "./update_codec.ts";
import { sees, ViewerGroups, type ViewerKey } from "./viewer_groups.ts";

/** One socket's interest in one topic. */
export interface Subscriber extends ViewerKey {
  /** Takes a frame; false when there is no room. It then has to pull, once there is. */
  offer(frame: Frame): boolean;
  /** The position cannot be continued any more: list anew. */
  stale(sent: bigint, bounds: Bounds): void;
}

/** What a feed keeps of a subscriber. */
export interface Subscription extends Subscriber {
  /** The epoch that the position belongs to. */
  readonly epoch: string;
  /** Complete up to here. While live, the feed's head is meant. */
  position: bigint;
  live: boolean;
  /** Still owes the client the batch that says the replay is complete. */
  replaying: boolean;
}

export interface FeedOptions {
  readonly journal: Journal;
  readonly metrics: SyncMetrics;
  readonly batch: ReadLimits;
  readonly tailBytes: number;
}

/** What a read of everybody's rows brings at most. */
const READ = { rows: 1_000, bytes: 8 << 20 };
/** How far back the tail starts, so that those who reconnect after our restart find it in memory. */
const WARM_ROWS = 1_000n;

/** One topic on this server: read once, kept hot, encoded once, and given to every socket that follows it. */
export class Feed {
  readonly model: Model;
  readonly #options: FeedOptions;
  readonly #context: Context;
  readonly #live = new ViewerGroups<Subscription>();
  readonly #backlog: Backlog;
  #tail: HotTail;
  #epoch: string;
  #bounds: Bounds;
  #refreshing: Promise<void> | undefined;
  #dirty = false;
  /** When the tail last moved, or was last seen to have nothing to do. */
  #movedAt: number;

  private constructor(model: Model, context: Context, options: FeedOptions, epoch: string, bounds: Bounds) {
    this.model = model;
    this.#context = context;
    this.#options = options;
    this.#epoch = epoch;
    this.#bounds = bounds;
    const warm = bounds.head - WARM_ROWS;
    this.#tail = new HotTail(warm > bounds.floor ? warm : bounds.floor, options.tailBytes);
    this.#backlog = new Backlog(options.journal, model, options.batch);
    this.#movedAt = context.clock.now();
  }

  /** Opens the feed at the topic's head, with the last rows warm. */
  static async open(model: Model, context: Context, options: FeedOptions): Promise<Feed> {
    const { epoch, topics } = await options.journal.heads();
    const feed = new Feed(model, context, options, epoch, topics.get(model.topic) ?? { head: 0n, floor: 0n });
    await feed.refresh();
    return feed;
  }

  get epoch(): string {
    return this.#epoch;
  }

  /** The newest watermark that this server has read. */
  get head(): bigint {
    return this.#tail.head;
  }

  /** The bounds as the database last told them. */
  get bounds(): Bounds {
    return { floor: this.#bounds.floor, head: this.#bounds.head > this.head ? this.#bounds.head : this.head };
  }

  get liveCount(): number {
    return this.#live.size;
  }

  /** Rows that the database has and this server has not read, and for how long nothing has moved. */
  backlog(): { rows: bigint; stuckMs: number } {
    const rows = this.bounds.head - this.head;
    return { rows, stuckMs: rows > 0n ? this.#context.clock.now() - this.#movedAt : 0 };
  }

  /** Takes what a poll of the database said. A new epoch starts the feed anew. */
  observe(epoch: string, bounds: Bounds): void {
    if (epoch !== this.#epoch) return this.#restart(epoch, bounds);
    if (this.backlog().rows === 0n) this.#movedAt = this.#context.clock.now();
    this.#bounds = bounds;
    if (bounds.head > this.head) {
      this.refresh().catch((error) =>
        this.#context.log.debug(
          { err: error.message, topic: this.model.topic },
          "a polled read failed; the next poll repeats it",
        ),
      );
    }
  }

  /** Reads what is new. Resolves when everything that was committed before the call is read. */
  refresh(): Promise<void> {
    this.#dirty = true;
    this.#refreshing ??= this.#read().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #read(): Promise<void> {
    const { journal, metrics, batch } = this.#options;
    const attributes = { topic: this.model.topic };
    while (this.#dirty) {
      this.#dirty = false;
      const tail = this.#tail;
      try {
        metrics.reads.add(1, attributes);
        const rows = await journal.read(this.model, tail.head, { ...READ, payloadBytes: batch.payloadBytes });
        if (rows.length === 0 || tail !== this.#tail) continue;
        this.#ingest(rows);
        const bytes = rows.reduce((sum, row) => sum + (row.payload?.length ?? 0), 0);
        if (rows.length === READ.rows || bytes > READ.bytes / 2 || this.head < this.#bounds.head)
          this.#dirty = true;
      } catch (error) {
        metrics.readFailures.add(1, attributes);
        throw error;
      }
    }
  }

  #ingest(rows: readonly JournalRow[]): void {
    const { metrics, batch } = this.#options;
    if (rows[0]!.watermark !== this.head + 1n) {
      // Retention passed us by: whoever was live has a gap.
      const floor = rows[0]!.watermark - 1n;
      this.#restart(this.#epoch, { floor, head: this.bounds.head });
      this.#tail = new HotTail(floor, this.#options.tailBytes);
    }
    const updates = rows.map((row) => encodeUpdate(this.model.topic, row, batch.payloadBytes));
    const before = this.head;
    this.#tail.append(updates);
    this.#movedAt = this.#context.clock.now();
    metrics.updates.add(rows.length, { topic: this.model.topic });
    let from = before;
    for (const chunk of chunks(updates, batch)) {
      this.#broadcast(chunk, from);
      from = chunk.at(-1)!.row.watermark;
    }
    metrics.commitToPush.record(Math.max(0, this.#movedAt - rows[0]!.insertedAt.getTime()), {
      topic: this.model.topic,
    });
    for (const row of rows) {
      recordSpan(this.#context.telemetry, row.trace, {
        name: `push ${this.model.topic}`,
        from: row.insertedAt.getTime(),
        to: this.#context.clock.now(),
        attributes: {
          "khala.topic": this.model.topic,
          "khala.doc_key": row.docKey,
          "khala.watermark": String(row.watermark),
        },
      });
    }
  }

  #broadcast(updates: readonly EncodedUpdate[], from: bigint): void {
    const through: Through = {
      epoch: this.#epoch,
      watermark: updates.at(-1)!.row.watermark,
      replayComplete: false,
    };
    let pushes = 0;
    for (const share of this.#live.split(updates)) {
      if (share.updates.every((update) => update.superseded)) continue;
      const encoded = new Map<string, Buffer>();
      for (const group of [...share.groups]) {
        const { encoding, rights } = group.key;
        let shared = encoded.get(encoding);
        if (!shared) {
          shared = sharedBatch(this.model.topic, share.updates, through, encoding);
          encoded.set(encoding, shared);
        }
        const frame = { shared, own: ownBatch(rights, through, encoding), binary: encoding === "proto" };
        for (const member of group.members) {
          if (member.offer(frame)) pushes++;
          else this.#demote(member, from);
        }
      }
    }
    this.#options.metrics.pushes.add(pushes, { topic: this.model.topic });
  }

  /** A full socket stops being live and pulls from where it was, when it can. */
  #demote(member: Subscription, position: bigint): void {
    this.#live.delete(member);
    member.live = false;
    member.position = position;
    this.#options.metrics.retried.add(1, { topic: this.model.topic });
  }

  #restart(epoch: string, bounds: Bounds): void {
    const members = [...this.#live];
    const head = this.head;
    this.#epoch = epoch;
    this.#bounds = bounds;
    this.#tail = new HotTail(bounds.head, this.#options.tailBytes);
    for (const member of members) {
      this.#demote(member, head);
      member.stale(head, bounds);
    }
  }

  /** Makes a subscription that is complete up to `position`; it is not live until `pull` says so. */
  follow(subscriber: Subscription): void {
    if (subscriber.position === this.head && !subscriber.replaying) this.#goLive(subscriber);
  }

  /** Ends a subscription. */
  leave(subscription: Subscription): void {
    this.#live.delete(subscription);
    subscription.live = false;
  }

  #goLive(subscription: Subscription): void {
    subscription.live = true;
    this.#live.add(subscription);
  }

  /**
   * Gives a subscription that is behind its next batch. Resolves true when it is live, or gone stale, and false when there
   * is more to pull. A refused offer leaves it where it was.
   */
  async pull(subscription: Subscription): Promise<boolean> {
    const started = this.#context.clock.now();
    if (subscription.position > this.head) await this.refresh();
    if (subscription.epoch !== this.#epoch || subscription.position > this.head)
      return this.#goneStale(subscription);
    let updates: EncodedUpdate[];
    let through: bigint;
    if (subscription.position >= this.#tail.base) {
      ({ updates, through } = this.#fromTail(subscription));
    } else {
      const page = await this.#backlog.read(subscription, subscription.position);
      if (page === "stale" || subscription.epoch !== this.#epoch) return this.#goneStale(subscription);
      const rows = page.rows.map((row) =>
        encodeUpdate(this.model.topic, row, this.#options.batch.payloadBytes),
      );
      updates = newestOnly(rows);
      through = page.through;
    }
    const owed = through >= this.head && subscription.replaying;
    if (updates.length > 0 || owed) {
      const batch = { epoch: this.#epoch, watermark: through, replayComplete: owed };
      const { encoding, rights } = subscription;
      const shared = sharedBatch(this.model.topic, updates, batch, encoding);
      if (
        !subscription.offer({ shared, own: ownBatch(rights, batch, encoding), binary: encoding === "proto" })
      )
        return false;
      this.#options.metrics.replayBatch.record(this.#context.clock.now() - started, {
        topic: this.model.topic,
      });
    }
    if (owed) subscription.replaying = false;
    subscription.position = through;
    // Checked and done within one turn, so no row can come in between: this is what makes replay and live meet.
    if (through !== this.head) return false;
    this.#goLive(subscription);
    return true;
  }

  #goneStale(subscription: Subscription): true {
    subscription.stale(subscription.position, this.bounds);
    return true;
  }

  #fromTail(subscription: Subscription): { updates: EncodedUpdate[]; through: bigint } {
    const { rows, bytes } = this.#options.batch;
    const visible: EncodedUpdate[] = [];
    let through = subscription.position;
    let total = 0;
    for (const update of this.#tail.after(subscription.position)) {
      if (sees(subscription, update)) {
        total += update.bytes;
        if (visible.length > 0 && (visible.length >= rows || total > bytes)) break;
        visible.push(update);
      }
      through = update.row.watermark;
    }
    return { updates: newestOnly(visible), through };
  }
}

/** Of several versions of a document in one replay batch only the newest matters. */
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
