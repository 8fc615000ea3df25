import { KhalaError } from "@khala/contracts";
import type { Redis, RedisOptions } from "ioredis";
import { backoff } from "../../../kit/backoff.ts";
import type { Context } from "../../../kit/context.ts";
import { failureOf, NotSent, unavailable } from "./errors.ts";
import type { RedisScript } from "./scripts.ts";
import { formatRedisAddress, type RedisAddress, type RedisTarget } from "./url.ts";

/** The settings of all connections of a log. */
export interface RedisSettings {
  readonly target: RedisTarget;
  /** The timeout of a reply and of a new connection. */
  readonly timeoutMs: number;
  /** The client class, which is imported only when Redis is used. */
  readonly client: new (
    options: RedisOptions,
  ) => Redis;
}

/** Limits of commands without a reply, and of commands that wait for a reconnect. */
const MAX_IN_FLIGHT = 20_000;
const MAX_WAITING = 2_000;

/** One connection to one server. Reconnects by itself; no command is sent twice or waits without a limit. */
export class RedisConnection {
  readonly name: string;
  readonly #context: Context;
  readonly timeoutMs: number;
  readonly #redis: Redis;
  readonly #loaded = new Set<string>();
  readonly #waiting = new Set<() => void>();
  #state: "down" | "unreachable" | "ready" | "closed" = "down";
  #cancelGrace: (() => void) | undefined;
  #cancelStallCheck: (() => void) | undefined;
  #inFlight = 0;
  #replies = 0;
  #problem = "";
  #generation = 0;

  constructor(context: Context, settings: RedisSettings, address: RedisAddress) {
    const { target, timeoutMs, client } = settings;
    this.name = formatRedisAddress(address);
    this.#context = context;
    this.timeoutMs = timeoutMs;
    this.#redis = new client({
      host: address.host,
      port: address.port,
      ...(target.username !== undefined && { username: target.username }),
      ...(target.password !== undefined && { password: target.password }),
      ...(target.tls && { tls: { servername: address.host } }),
      db: target.db,
      connectionName: "khala",
      protocol: 2,
      lazyConnect: true,
      connectTimeout: timeoutMs,
      disconnectTimeout: 100,
      maxLoadingRetryTime: 1_000,
      // A command without a reply may have been executed, and an append must not be repeated: none is sent again.
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      enableOfflineQueue: false,
      autoResubscribe: false,
      retryStrategy: (attempt) => backoff(attempt - 1, context.random, { base: 50, cap: 2_000 }),
    });
    this.#redis.on("ready", () => this.#onReady());
    this.#redis.on("close", () => this.#onClose());
    this.#redis.on("error", (error: Error) => {
      this.#problem = error.message;
    });
    this.#startGracePeriod();
    this.#redis.connect().catch((error: Error) => {
      this.#problem ||= error.message;
    });
  }

  get ready(): boolean {
    return this.#state === "ready";
  }

  /** Counts connects: another number means another connection. */
  get generation(): number {
    return this.#generation;
  }

  /** The last error, while it is not ready. */
  get problem(): string | undefined {
    return this.ready ? undefined : this.#problem || "it does not respond";
  }

  /** Resolves when it is connected, or after the grace period. */
  async settled(): Promise<void> {
    if (this.#state === "down") await new Promise<void>((resolve) => this.#waiting.add(resolve));
  }

  /** Calls the listener at each connect. */
  onReady(listener: () => void): void {
    this.#redis.on("ready", listener);
    if (this.ready) listener();
  }

  onDisconnect(listener: () => void): void {
    this.#redis.on("close", listener);
  }

  /** Calls the listener for each message; with undefined when channels have moved to another node. */
  onMessage(listener: (channel: string | undefined, payload: string) => void): void {
    this.#redis.on("message", listener);
    this.#redis.on("smessage", listener);
    this.#redis.on("moved", () => listener(undefined, ""));
  }

  /** Sends a command and waits for its reply. Waits for a reconnect within the grace period. */
  async call<T>(send: (redis: Redis) => Promise<T>): Promise<T> {
    if (this.#state !== "ready") await this.#becomeReady();
    if (this.#inFlight >= MAX_IN_FLIGHT)
      throw new KhalaError(
        "overloaded",
        `Redis (${this.name}) is overloaded: too many commands without a reply.`,
        { retry_after_ms: 1_000 },
      );
    this.#inFlight++;
    this.#checkForStall();
    try {
      return await send(this.#redis);
    } finally {
      this.#inFlight--;
      this.#replies++;
    }
  }

  /** Runs a script; its text is sent once per connection. */
  script(script: RedisScript, keys: readonly string[], args: readonly string[], asking = false) {
    const { sha, lua } = script;
    return this.call(async (redis): Promise<unknown> => {
      // Both are written in one tick, so nothing comes between them; the second one reports errors.
      if (asking) redis.asking().catch(() => undefined);
      const loaded = this.#loaded.has(sha);
      this.#loaded.add(sha);
      if (!loaded) return redis.eval(lua, keys.length, ...keys, ...args);
      try {
        return await redis.evalsha(sha, keys.length, ...keys, ...args);
      } catch (error) {
        if (failureOf(error as Error).kind !== "noscript") throw error;
        if (asking) redis.asking().catch(() => undefined);
        return redis.eval(lua, keys.length, ...keys, ...args);
      }
    });
  }

  /** Drops the connection and connects again. */
  reconnect(reason: string): void {
    this.#problem = reason;
    this.#redis.disconnect(true);
  }

  close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#cancelGrace?.();
    this.#cancelStallCheck?.();
    this.#redis.disconnect();
    this.#wakeAll();
  }

  async #becomeReady(): Promise<void> {
    if (this.#waiting.size < MAX_WAITING) await this.settled();
    if (this.#state === "closed") throw new NotSent("the connection was closed");
    if (this.#state !== "ready")
      throw unavailable(`Redis (${this.name}) cannot be reached: ${this.problem}.`);
  }

  #onReady(): void {
    if (this.#state === "closed") return;
    if (this.#state === "unreachable")
      this.#context.log.info({ redis: this.name }, "Redis is reachable again");
    this.#state = "ready";
    this.#generation++;
    this.#cancelGrace?.();
    this.#cancelGrace = undefined;
    this.#loaded.clear();
    this.#problem = "";
    this.#wakeAll();
  }

  #onClose(): void {
    if (this.#state !== "ready") return;
    this.#state = "down";
    this.#context.log.warn({ redis: this.name, err: this.#problem }, "a connection to Redis was lost");
    this.#startGracePeriod();
  }

  /** Commands wait during the grace period; after it they fail at once until the connection is back. */
  #startGracePeriod(): void {
    this.#cancelGrace = this.#context.clock.after(this.timeoutMs, () => {
      this.#cancelGrace = undefined;
      this.#state = "unreachable";
      this.#context.log.warn({ redis: this.name, err: this.problem }, "Redis cannot be reached");
      this.#wakeAll();
    });
  }

  #wakeAll(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  /** Replies come in order: none within the timeout means that the connection is dead. */
  #checkForStall(): void {
    if (this.#cancelStallCheck) return;
    const before = this.#replies;
    this.#cancelStallCheck = this.#context.clock.after(this.timeoutMs, () => {
      this.#cancelStallCheck = undefined;
      if (this.#inFlight === 0) return;
      if (this.#replies === before) this.reconnect("no reply came");
      else this.#checkForStall();
    });
  }
}
