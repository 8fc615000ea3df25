import { KhalaError, type Wire } from "@khala/contracts";
import type { SubscribedJson } from "@khala/contracts/sync/v1";
import { type Backoff, backoffMs } from "../connection/backoff.ts";
import type { Progress } from "../connection/connection.ts";
import type { Channel } from "../connection/port.ts";
import type { Environment } from "../environment.ts";
import type { Http } from "../http.ts";
import type { Cursor } from "../storage/storage.ts";
import { cursorOf } from "./cursor.ts";
import { listTopic } from "./document_requests.ts";
import type { TopicPhase, TopicSink, Update } from "./source.ts";

export interface FollowedOptions {
  readonly http: Http;
  readonly environment: Environment;
  readonly push: Channel["push"];
  readonly onProgress: () => void;
}

const RETRY: Backoff = { baseMs: 500, capMs: 30_000 };

/** Limit of queued updates while the sink is busy, in characters of JSON. One batch always fits. */
export const MAX_PENDING = 4_000_000;

interface Pending {
  readonly updates: Update[];
  through: Cursor;
  complete: boolean;
  /** Characters of JSON that arrived while the sink was busy. */
  size: number;
}

/** One topic on the sync channel: subscribes from its position, or lists it first, and passes changes to the sink in order. */
export class FollowedTopic {
  readonly #name: string;
  readonly #sink: TopicSink;
  readonly #options: FollowedOptions;
  #phase: TopicPhase = "loading";
  /** False until the subscribe is answered: earlier frames belong to a previous subscription. */
  #subscribed = false;
  /** The topic's head when it was subscribed to. */
  #head: Cursor | undefined;
  /** The position is stale, so the topic must be listed. */
  #mustList = false;
  /** The current attempt; a newer one aborts it. */
  #attempt = new AbortController();
  #failures = 0;
  #pending: Pending | undefined;
  #handing: Promise<void> | undefined;
  #replacing: Promise<void> | undefined;
  #cancelRetry: () => void = () => {};

  constructor(name: string, sink: TopicSink, options: FollowedOptions) {
    this.#name = name;
    this.#sink = sink;
    this.#options = options;
  }

  get isForbidden(): boolean {
    return this.#phase === "forbidden";
  }

  get progress(): Progress {
    if (this.#phase === "stale") return "stale";
    return this.#phase === "live" || this.#phase === "forbidden" ? "live" : "replaying";
  }

  /** Changes left to replay; undefined when unknown or not replaying. */
  get behind(): number | undefined {
    const at = this.#sink.position();
    if (this.#phase !== "replaying" || !this.#head || at?.epoch !== this.#head.epoch) return undefined;
    return Math.max(0, Number(BigInt(this.#head.watermark) - BigInt(at.watermark)));
  }

  /** The channel is joined: subscribes. */
  joined(): void {
    this.#begin(this.#restart());
  }

  /** The channel was left or closed. */
  left(error: KhalaError | undefined): void {
    this.#restart();
    if (error && isFinal(error)) this.forbidden(error);
    else this.offline(error);
  }

  offline(error: KhalaError | undefined): void {
    this.#set("offline", error);
  }

  forbidden(error: KhalaError): void {
    this.#set("forbidden", error);
  }

  /** The server cannot resume from the position. */
  stale(): void {
    // Belongs to an earlier subscription.
    if (!this.#subscribed) return;
    this.#mustList = true;
    if (this.#failures === 0) this.joined();
    else this.#restart();
    // A freshly listed position should not be stale. Socket and HTTP may see new access rights at different times: back off.
    if (this.#failures++ > 0) this.#retryLater(undefined);
  }

  batch(updates: readonly Update[], through: Cursor, complete: boolean): void {
    if (!this.#subscribed) return;
    // Only queued updates are measured.
    const size = this.#handing && updates.length > 0 ? JSON.stringify(updates).length : 0;
    if (this.#pending && this.#pending.size + size > MAX_PENDING) return this.#pause(this.#pending);
    this.#pending ??= { updates: [], through, complete: false, size: 0 };
    for (const update of updates) this.#pending.updates.push(update);
    this.#pending.through = through;
    this.#pending.complete ||= complete;
    this.#pending.size += size;
    this.#hand();
  }

  end(): void {
    this.#restart();
  }

  /** Updates arrive faster than they are stored: unsubscribes, and resubscribes from the stored position later. */
  #pause(pending: Pending): void {
    const attempt = this.#restart();
    this.#pending = { ...pending, complete: false };
    this.#set("replaying");
    // Best effort: frames before the next reply are dropped anyway.
    this.#options.push("unsubscribe", { topics: [this.#name] }).catch(() => {});
    this.#begin(attempt);
  }

  #begin(attempt: AbortController): void {
    this.#follow(attempt.signal).catch((error: unknown) => {
      if (!attempt.signal.aborted) this.#failed(asKhalaError(error));
    });
  }

  #restart(): AbortController {
    this.#attempt.abort();
    this.#cancelRetry();
    this.#subscribed = false;
    this.#head = undefined;
    this.#pending = undefined;
    this.#attempt = new AbortController();
    return this.#attempt;
  }

  async #follow(signal: AbortSignal): Promise<void> {
    // Pending updates are stored first, because they move the position.
    await this.#handing;
    await this.#replacing;
    if (signal.aborted) return;
    let position = this.#mustList ? undefined : this.#sink.position();
    if (!position) {
      this.#set(this.#sink.position() ? "stale" : "loading");
      const { documents, cursor } = await listTopic(this.#options.http, this.#name, signal);
      if (signal.aborted) return;
      const replaced = this.#sink.replace(documents, cursor);
      this.#replacing = replaced.catch(() => {});
      await replaced;
      this.#mustList = false;
      position = cursor;
    }
    if (signal.aborted) return;
    this.#set("replaying");
    const payload = { topics: [this.#name], resume_after: { [this.#name]: position } };
    await this.#options.push("subscribe", payload, (reply) => {
      if (signal.aborted) return;
      this.#subscribed = true;
      const { current_watermarks = {} } = (reply ?? {}) as Wire<SubscribedJson>;
      this.#head = cursorOf(current_watermarks[this.#name]);
      this.#options.onProgress();
    });
  }

  #failed(error: KhalaError): void {
    if (isFinal(error)) return this.forbidden(error);
    this.#set("offline", error);
    this.#failures++;
    this.#retryLater(error.details.retry_after_ms);
  }

  #retryLater(atLeastMs: number | undefined): void {
    const wait = backoffMs(this.#failures, this.#options.environment.random, RETRY, atLeastMs);
    this.#cancelRetry = this.#options.environment.timer(wait, () => this.joined());
  }

  /** Passes pending updates to the sink. Updates that arrive during the call go with the next one. */
  #hand(): void {
    this.#handing ??= this.#handAll()
      .catch((error: unknown) => {
        // The batch may be applied in part, so the whole topic is listed again.
        this.#mustList = true;
        this.#restart();
        this.#failed(asKhalaError(error));
      })
      .finally(() => {
        this.#handing = undefined;
        if (this.#pending) this.#hand();
      });
  }

  async #handAll(): Promise<void> {
    for (let pending = this.#pending; pending; pending = this.#pending) {
      this.#pending = undefined;
      const { signal } = this.#attempt;
      await this.#sink.apply(pending.updates, pending.through);
      if (signal.aborted) continue;
      if (pending.complete) {
        this.#failures = 0;
        this.#set("live");
      } else if (this.#phase === "replaying") this.#options.onProgress();
    }
  }

  #set(phase: TopicPhase, error?: KhalaError): void {
    this.#phase = phase;
    this.#sink.phase(phase, error);
    this.#options.onProgress();
  }
}

/** Whether trying again cannot help: it takes another token, or a part that the topic has. */
function isFinal(error: KhalaError): boolean {
  const { status, retryable } = error.meaning;
  return !retryable && [400, 401, 403, 404].includes(status);
}

function asKhalaError(cause: unknown): KhalaError {
  if (cause instanceof KhalaError) return cause;
  return new KhalaError("internal", "The topic could not be followed.", {}, { cause });
}
