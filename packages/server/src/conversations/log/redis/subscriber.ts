import { sleep } from "../../../kit/clock.ts";
import type { Context } from "../../../kit/context.ts";
import type { RedisConnection } from "./connection.ts";
import { failureOf } from "./errors.ts";

/** Gets what a subscriber receives. */
export interface SubscriberListener {
  message(channel: string, payload: string): void;
  /** Messages may have been missed on these channels: their connection was lost or restored. */
  missed(channels: readonly string[]): void;
  /** Some channels have moved to another node. */
  moved(): void;
}

const BATCH_SIZE = 500;

/** The subscriptions of one connection. They are restored after a reconnect. */
export class RedisSubscriber {
  readonly #context: Context;
  readonly #connection: RedisConnection;
  /** Sharded channels live on the node of their slot; others on every node. */
  readonly #sharded: boolean;
  readonly #listener: SubscriberListener;
  readonly #channels = new Set<string>();
  readonly #stopping = new AbortController();
  #wasConnected = false;

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
    // At once, not after the reconnect: the first message after it may look contiguous without being so.
    connection.onDisconnect(() => listener.missed([...this.#channels]));
    void this.#ping();
  }

  get ready(): boolean {
    return this.#connection.ready;
  }

  settled(): Promise<void> {
    return this.#connection.settled();
  }

  /** Subscribes to a channel. Messages arrive once this resolves. */
  async add(channel: string): Promise<void> {
    this.#channels.add(channel);
    await this.#subscribe([channel]);
  }

  /** Unsubscribes. A lost connection needs no command for it. */
  remove(channel: string): void {
    if (!this.#channels.delete(channel) || !this.#connection.ready) return;
    this.#connection
      .call((redis) => (this.#sharded ? redis.sunsubscribe(channel) : redis.unsubscribe(channel)))
      .catch((error: Error) => {
        this.#context.log.debug({ err: error.message }, "a channel could not be unsubscribed");
      });
  }

  /** Drops the connection and connects again, with all channels. */
  reconnect(reason: string): void {
    this.#connection.reconnect(reason);
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
    const first = !this.#wasConnected;
    this.#wasConnected = true;
    const channels = [...this.#channels];
    const { generation } = this.#connection;
    try {
      for (let i = 0; i < channels.length; i += BATCH_SIZE)
        await this.#subscribe(channels.slice(i, i + BATCH_SIZE));
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      if (failureOf(error as Error).kind === "moved") return this.#listener.moved();
      this.#context.log.warn(
        { redis: this.#connection.name, err: (error as Error).message },
        "channels could not be subscribed again; reconnecting",
      );
      await sleep(this.#context.clock, 100, this.#stopping.signal);
      // A newer connection restores its channels by itself.
      if (this.#connection.generation === generation)
        this.#connection.reconnect("channels could not be subscribed again");
      return;
    }
    if (!first && channels.length > 0) this.#listener.missed(channels);
  }

  /** Detects a dead connection by a missing reply. */
  async #ping(): Promise<void> {
    const { signal } = this.#stopping;
    for (;;) {
      await sleep(this.#context.clock, this.#connection.timeoutMs, signal);
      if (signal.aborted) return;
      if (!this.#connection.ready) continue;
      await this.#connection
        .call((redis) => redis.ping())
        .catch((error: Error) => {
          this.#context.log.debug({ err: error.message }, "a ping got no reply");
        });
    }
  }
}
