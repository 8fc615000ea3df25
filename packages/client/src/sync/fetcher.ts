import { KhalaError } from "@khala/contracts";
import { type Backoff, backoffMs } from "../connection/backoff.ts";
import type { Environment } from "../environment.ts";
import type { Http } from "../http.ts";
import type { Log } from "../log.ts";
import type { StoredDocument } from "../storage/storage.ts";
import { pathOf, toStored, type WireDocument } from "./document_requests.ts";
import { type Entry, isUnfetched } from "./documents.ts";
import type { Topic } from "./topic.ts";

interface Job {
  readonly topic: Topic;
  readonly key: string;
  readonly signal: AbortSignal;
  failures: number;
}

const MAX_REQUESTS = 4;
const RETRY: Backoff = { baseMs: 1_000, capMs: 30_000 };

/** Fetches documents that were too large for a frame, a few at a time, with retries. */
export class Fetcher {
  readonly #http: Http;
  readonly #environment: Environment;
  readonly #log: Log;
  readonly #queue: Job[] = [];
  readonly #wanted = new WeakMap<Topic, Set<string>>();
  #running = 0;

  constructor(http: Http, environment: Environment, log: Log) {
    this.#http = http;
    this.#environment = environment;
    this.#log = log;
  }

  /** Queues a document until it is fetched or the signal aborts. */
  add(topic: Topic, key: string, signal: AbortSignal): void {
    const wanted = this.#wanted.get(topic) ?? new Set();
    this.#wanted.set(topic, wanted);
    if (wanted.has(key)) return;
    wanted.add(key);
    this.#queue.push({ topic, key, signal, failures: 0 });
    this.#next();
  }

  #next(): void {
    while (this.#running < MAX_REQUESTS) {
      const job = this.#queue.shift();
      if (!job) return;
      if (job.signal.aborted) continue;
      this.#running++;
      this.#work(job).finally(() => {
        this.#running--;
        this.#next();
      });
    }
  }

  async #work(job: Job): Promise<void> {
    const { topic, key, signal } = job;
    try {
      const entry = topic.documents.get(key);
      if (entry && isUnfetched(entry)) await topic.resolve(await this.#fetch(entry, signal));
      const after = topic.documents.get(key);
      // A newer version was announced in the meantime.
      if (after && isUnfetched(after) && !signal.aborted) return this.#later(job);
      this.#wanted.get(topic)?.delete(key);
    } catch (error) {
      if (signal.aborted) return;
      this.#log({
        level: "warn",
        event: "document_not_fetched",
        message: `${key} is fetched again later.`,
        error,
      });
      this.#later(job);
    }
  }

  async #fetch({ stored, item, shownHash }: Entry, signal: AbortSignal): Promise<StoredDocument> {
    const headers = shownHash ? { "if-none-match": `"${shownHash}"` } : {};
    try {
      const { status, body } = await this.#http.request("GET", pathOf(stored.key), { headers, signal });
      if (status === 304) return { ...stored, hash: shownHash ?? "", payload: item?.data };
      return toStored(body as WireDocument);
    } catch (error) {
      // Deleted, or no longer visible: the update for that follows.
      if (error instanceof KhalaError && error.code === "not_found")
        return { key: stored.key, version: stored.version, hash: "", deleted: true };
      throw error;
    }
  }

  #later(job: Job): void {
    const wait = backoffMs(++job.failures, this.#environment.random, RETRY);
    this.#environment.timer(wait, () => {
      this.#queue.push(job);
      this.#next();
    });
  }
}
