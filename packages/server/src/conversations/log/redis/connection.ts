import { KhalaError } from "@khala/contracts";
import type { Redis, RedisOptions } from "ioredis";
import { backoff } from "../../../kit/backoff.ts";
import type { Context } from "../../../kit/context.ts";
import { failureOf, NotSent, unavailable } from "./errors.ts";
import type { RedisScript } from "./scripts.ts";
import { formatRedisAddress, type RedisAddress, type RedisTarget } from "./url.ts";

/** What all connections of a log have in common. */
export interface RedisSettings {
  readonly target: RedisTarget;
  /** How long an answer or a new connection may take. */
  readonly timeoutMs: number;
  /** The client, which is loaded only by those who use Redis. */
  readonly client: new (
    options: RedisOptions,
  ) => Redis;
}

/** Commands that may wait for an answer, and for the connection to come back. */
const MAX_IN_FLIGHT = 20_000;
const MAX_WAITING = 2_000;

/** One connection to one server: it comes back by itself, and nothing is sent twice or waits for ever. */
export class RedisConnection {
  readonly name: string;
  readonly #context: Context;
  readonly timeoutMs: number;
  readonly #redis: Redis;
  readonly #loaded = new Set<string>();
  readonly #waiting = new Set<() => void>();
  #state: "down" | "hopeless" | "ready" | "closed" = "down";
  #cancelGrace: (() => void) | undefined;
  #cancelWatch: (() => void) | undefined;
  #inFlight = 0;
  #answers = 0;
  #problem = "";
  #times = 0;

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
      // A command whose answer was lost may have been done, and an append must not be done twice: none is sent again.
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      enableOfflineQueue: false,
      autoResubscribe: false,
      retryStrategy: (attempt) => backoff(attempt - 1, context.random, { base: 50, cap: 2_000 }),
    });
    this.#redis.on("ready", () => this.#up());
    this.#redis.on("close", () => this.#down());
    this.#redis.on("error", (error: Error) => {
      this.#problem = error.message;
    });
    this.#giveTime();
    this.#redis.connect().catch((error: Error) => {
      this.#problem ||= error.message;
    });
  }

  get ready(): boolean {
    return this.#state === "ready";
  }

  /** How many times it was there: another number means another connection. */
  get times(): number {
    return this.#times;
  }

  /** What went wrong last, while it is not ready. */
  get problem(): string | undefined {
    return this.ready ? undefined : this.#problem || "it does not answer";
  }

  /** Resolves once it is there, or could not be had in time. */
  async tried(): Promise<void> {
    if (this.#state === "down") await new Promise<void>((resolve) => this.#waiting.add(resolve));
  }

  /** Calls the listener whenever the connection is there, at first and again. */
  onReady(listener: () => void): void {
    this.#redis.on("ready", listener);
    if (this.ready) listener();
  }

  onLost(listener: () => void): void {
    this.#redis.on("close", listener);
  }

  /** Calls the listener for each message of a channel; with undefined when channels have moved to another server. */
  onMessage(listener: (channel: string | undefined, payload: string) => void): void {
    this.#redis.on("message", listener);
    this.#redis.on("smessage", listener);
    this.#redis.on("moved", () => listener(undefined, ""));
  }

  /** Sends something and waits for its answer, first for the connection if it was lost a moment ago. */
  async call<T>(send: (redis: Redis) => Promise<T>): Promise<T> {
    if (this.#state !== "ready") await this.#becomeReady();
    if (this.#inFlight >= MAX_IN_FLIGHT)
      throw new KhalaError("overloaded", `Redis (${this.name}) does not keep up.`, { retry_after_ms: 1_000 });
    this.#inFlight++;
    this.#watch();
    try {
      return await send(this.#redis);
    } finally {
      this.#inFlight--;
      this.#answers++;
    }
  }

  /** Runs a script; its text is sent once for each connection. */
  script(script: RedisScript, keys: readonly string[], args: readonly string[], asking = false) {
    const { sha, lua } = script;
    return this.call(async (redis): Promise<unknown> => {
      // Both are written at once, so nothing can come between them; what goes wrong, the second one tells.
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

  /** Breaks the connection; it comes back by itself. */
  cut(reason: string): void {
    this.#problem = reason;
    this.#redis.disconnect(true);
  }

  close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#cancelGrace?.();
    this.#cancelWatch?.();
    this.#redis.disconnect();
    this.#wakeAll();
  }

  async #becomeReady(): Promise<void> {
    if (this.#waiting.size < MAX_WAITING) await this.tried();
    if (this.#state === "closed") throw new NotSent("the connection was closed");
    if (this.#state !== "ready")
      throw unavailable(`Redis (${this.name}) cannot be reached: ${this.problem}.`);
  }

  #up(): void {
    if (this.#state === "closed") return;
    if (this.#state === "hopeless") this.#context.log.info({ redis: this.name }, "Redis is there again");
    this.#state = "ready";
    this.#times++;
    this.#cancelGrace?.();
    this.#cancelGrace = undefined;
    this.#loaded.clear();
    this.#problem = "";
    this.#wakeAll();
  }

  #down(): void {
    if (this.#state !== "ready") return;
    this.#state = "down";
    this.#context.log.warn({ redis: this.name, err: this.#problem }, "a connection to Redis was lost");
    this.#giveTime();
  }

  /** A short loss is waited out; after that, commands fail at once until the connection is there. */
  #giveTime(): void {
    this.#cancelGrace = this.#context.clock.after(this.timeoutMs, () => {
      this.#cancelGrace = undefined;
      this.#state = "hopeless";
      this.#context.log.warn({ redis: this.name, err: this.problem }, "Redis cannot be reached");
      this.#wakeAll();
    });
  }

  #wakeAll(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  /** Answers come in order: none at all for a whole period means that the link is dead. */
  #watch(): void {
    if (this.#cancelWatch) return;
    const before = this.#answers;
    this.#cancelWatch = this.#context.clock.after(this.timeoutMs, () => {
      this.#cancelWatch = undefined;
      if (this.#inFlight === 0) return;
      if (this.#answers === before) this.cut("no answer came");
      else this.#watch();
    });
  }
}
