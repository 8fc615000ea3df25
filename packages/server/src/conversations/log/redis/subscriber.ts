import { sleep } from "../../../kit/clock.ts";
import type { Context } from "../../../kit/context.ts";
import type { RedisConnection } from "./connection.ts";
import { failureOf } from "./errors.ts";

/** Who is told what a subscriber hears. */
export interface SubscriberListener {
  message(channel: string, payload: string): void;
  /** Something may have been missed on these channels: their connection was lost, or they are heard again. */
  missed(channels: readonly string[]): void;
  /** Some channels are another server's now. */
  moved(): void;
}

const CHUNK = 500;

/** The channels that are heard on one connection: all of them again whenever it comes back. */
export class RedisSubscriber {
  readonly #context: Context;
  readonly #connection: RedisConnection;
  /** Sharded channels live on the node of their slot; the others are heard everywhere. */
  readonly #sharded: boolean;
  readonly #listener: SubscriberListener;
  readonly #channels = new Set<string>();
  readonly #stopping = new AbortController();
  #before = false;

  constructor(context: Context, connection: RedisConnection, sharded: boolean, listener: SubscriberListener) {
    this.#context = context;
    this.#connection = connection;
    this.#sharded = sharded;
    this.#listener = listener;
    connection.onMessage((channel, payload) => {
      if (channel === undefined) listener.moved();
      else listener.message(channel, payload);
    });
    connection.onReady(() => void this.#restore());
    // At once, and not only when it is back: the first message after that may look like the next one, and not be it.
    connection.onLost(() => listener.missed([...this.#channels]));
    void this.#ping();
  }

  get ready(): boolean {
    return this.#connection.ready;
  }

  tried(): Promise<void> {
    return this.#connection.tried();
  }

  /** Hears a channel from when this resolves. */
  async add(channel: string): Promise<void> {
    this.#channels.add(channel);
    await this.#subscribe([channel]);
  }

  /** Hears it no more. A connection that is not there has forgotten it anyway. */
  remove(channel: string): void {
    if (!this.#channels.delete(channel) || !this.#connection.ready) return;
    this.#connection
      .call((redis) => (this.#sharded ? redis.sunsubscribe(channel) : redis.unsubscribe(channel)))
      .catch((error: Error) => {
        this.#context.log.debug({ err: error.message }, "a channel was not left in order");
      });
  }

  /** Breaks the connection; all channels are heard again once it is back. */
  cut(reason: string): void {
    this.#connection.cut(reason);
  }

  stop(): void {
    this.#stopping.abort();
    this.#connection.close();
  }

  async #subscribe(channels: readonly string[]): Promise<void> {
    await this.#connection.call(async (redis) => {
      if (!this.#sharded) return redis.subscribe(...channels);
      return Promise.all(channels.map((channel) => redis.ssubscribe(channel)));
    });
  }

  async #restore(): Promise<void> {
    const first = !this.#before;
    this.#before = true;
    const channels = [...this.#channels];
    const { times } = this.#connection;
    try {
      for (let i = 0; i < channels.length; i += CHUNK) await this.#subscribe(channels.slice(i, i + CHUNK));
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      if (failureOf(error as Error).kind === "moved") return this.#listener.moved();
      this.#context.log.warn(
        { redis: this.#connection.name, err: (error as Error).message },
        "channels could not be heard again, which is tried once more",
      );
      await sleep(this.#context.clock, 100, this.#stopping.signal);
      // Another connection, if there is one by now, does this for itself.
      if (this.#connection.times === times) this.#connection.cut("channels could not be heard again");
      return;
    }
    if (!first && channels.length > 0) this.#listener.missed(channels);
  }

  /** A link that died in silence is found by an answer that does not come. */
  async #ping(): Promise<void> {
    const { signal } = this.#stopping;
    for (;;) {
      await sleep(this.#context.clock, this.#connection.timeoutMs, signal);
      if (signal.aborted) return;
      if (!this.#connection.ready) continue;
      await this.#connection
        .call((redis) => redis.ping())
        .catch((error: Error) => {
          this.#context.log.debug({ err: error.message }, "a ping was not answered");
        });
    }
  }
}
