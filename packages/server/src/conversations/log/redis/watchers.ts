import type { Context } from "../../../kit/context.ts";
import type { News, Watcher } from "../log.ts";
import { Watchers } from "../watchers.ts";

/** Where channels are heard. */
export interface Channels {
  subscribe(channel: string): Promise<void>;
  unsubscribe(channel: string): void;
}

interface Subscription {
  watchers: number;
  readonly subscribed: Promise<void>;
}

/** Who watches which stream: one subscription for all watchers of it. */
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
      // Whoever comes next tries anew, even while others still wait to be told of the failure.
      if (this.#subscriptions.get(stream) === subscription) this.#subscriptions.delete(stream);
      leave();
      throw error;
    }
    return leave;
  }

  /** Gives out what was published on a stream's channel. */
  message(stream: string, payload: string): void {
    const news = parsePayload(payload);
    if (news) this.#watchers.news(stream, news);
    else this.#watchers.missed(stream);
  }

  /** Tells all who watch these streams that they may have missed something. */
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

/** Reads `<epoch> <time> <first sequence>` and a line for each entry; undefined if it is anything else. */
function parsePayload(payload: string): News | undefined {
  if (!HEADER.test(payload)) return undefined;
  const first = payload.indexOf(" ");
  const second = payload.indexOf(" ", first + 1);
  const end = payload.indexOf("\n", second);
  const epoch = payload.slice(0, first);
  const time = Number(payload.slice(first + 1, second));
  let seq = BigInt(payload.slice(second + 1, end));
  const data = payload.slice(end + 1);
  // Nearly always one: a word on its way.
  if (!data.includes("\n")) return { epoch, entries: [{ seq, time, data }] };
  return { epoch, entries: data.split("\n").map((line) => ({ seq: seq++, time, data: line })) };
}
