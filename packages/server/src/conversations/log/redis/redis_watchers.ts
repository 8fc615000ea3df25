import type { Context } from "../../../kit/context.ts";
import type { Appended, Watcher } from "../log.ts";
import { Watchers } from "../watchers.ts";

/** Subscribes to channels. */
export interface Channels {
  subscribe(channel: string): Promise<void>;
  unsubscribe(channel: string): void;
}

interface Subscription {
  watchers: number;
  readonly subscribed: Promise<void>;
}

/** The watchers of streams, with one subscription per stream. */
export class RedisWatchers {
  readonly #channels: Channels;
  readonly #watchers: Watchers;
  readonly #subscriptions = new Map<string, Subscription>();

  constructor(context: Context, channels: Channels) {
    this.#channels = channels;
    this.#watchers = new Watchers(context);
  }

  async watch(stream: string, watcher: Watcher): Promise<() => void> {
    let subscription = this.#subscriptions.get(stream);
    if (!subscription) {
      subscription = { watchers: 0, subscribed: this.#channels.subscribe(stream) };
      this.#subscriptions.set(stream, subscription);
    }
    subscription.watchers++;
    const remove = this.#watchers.add(stream, watcher);
    let left = false;
    const leave = () => {
      if (left) return;
      left = true;
      remove();
      this.#leave(stream, subscription);
    };
    try {
      await subscription.subscribed;
    } catch (error) {
      // The next watcher subscribes again, even while others still wait for this failure.
      if (this.#subscriptions.get(stream) === subscription) this.#subscriptions.delete(stream);
      leave();
      throw error;
    }
    return leave;
  }

  /** Delivers a message of a stream's channel. */
  message(stream: string, payload: string): void {
    const appended = parsePayload(payload);
    if (appended) this.#watchers.appended(stream, appended);
    else this.#watchers.missed(stream);
  }

  /** Tells the watchers of these streams that entries may have been missed. */
  missed(streams: Iterable<string>): void {
    for (const stream of streams) this.#watchers.missed(stream);
  }

  #leave(stream: string, subscription: Subscription): void {
    if (--subscription.watchers > 0 || this.#subscriptions.get(stream) !== subscription) return;
    this.#subscriptions.delete(stream);
    this.#channels.unsubscribe(stream);
  }
}

const HEADER = /^[A-Za-z0-9-]{1,64} \d{1,15} \d{1,19}\n/;

/** Parses `<epoch> <time> <first sequence>` and a line per entry; undefined for anything else. */
function parsePayload(payload: string): Appended | undefined {
  if (!HEADER.test(payload)) return undefined;
  const first = payload.indexOf(" ");
  const second = payload.indexOf(" ", first + 1);
  const end = payload.indexOf("\n", second);
  const epoch = payload.slice(0, first);
  const time = Number(payload.slice(first + 1, second));
  let seq = BigInt(payload.slice(second + 1, end));
  const data = payload.slice(end + 1);
  // Almost always one entry.
  if (!data.includes("\n")) return { epoch, entries: [{ seq, time, data }] };
  return { epoch, entries: data.split("\n").map((line) => ({ seq: seq++, time, data: line })) };
}
