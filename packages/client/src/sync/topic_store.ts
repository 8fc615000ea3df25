import { KhalaError } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import { withPatience, withStorageTimeout } from "../storage/driver_support.ts";
import type { Cursor, Storage, StoredDocument, StoredTopic, TopicChange } from "../storage/storage.ts";

export interface TopicStoreOptions {
  readonly storage: Storage;
  readonly scope: string;
  readonly topic: string;
  readonly environment: Environment;
  readonly log: Log;
  /** Whether this tab writes. */
  readonly storing: () => boolean;
}

/** How long a topic waits for its stored documents before it lists them from the server. */
export const LOAD_PATIENCE_MS = 1_000;
/** How long a change waits to be stored before the next one is shown. */
export const COMMIT_PATIENCE_MS = 250;

/**
 * Stores one topic. A failure is logged, not thrown: the stored topic is removed, and nothing
 * is written until the whole topic can be. A slow storage delays nothing: the topic continues without it, and is stored
 * as a whole once it answers.
 */
export class TopicStore {
  readonly #options: TopicStoreOptions;
  /** The cursor of the stored documents; undefined when changes cannot be added to them. */
  #stored: Cursor | undefined;
  /** Whether an operation is running that the topic does not wait for. */
  #late = false;
  /** After a failure only a full replacement from the server is written. */
  #gaveUp = false;

  constructor(options: TopicStoreOptions) {
    this.#options = options;
  }

  load(): Promise<StoredTopic | undefined> {
    return this.#patiently(LOAD_PATIENCE_MS, this.#load());
  }

  async #load(): Promise<StoredTopic | undefined> {
    const { storage, scope, topic } = this.#options;
    try {
      const stored = await this.#bounded(storage.load(scope, topic));
      this.#stored = stored?.cursor;
      return stored;
    } catch (error) {
      await this.#failed("storage_unreadable", "The stored topic cannot be read.", error);
      return undefined;
    }
  }

  /** Whether the whole topic must be stored next. */
  get needsAll(): boolean {
    return this.#options.storing() && !this.#stored && !this.#gaveUp && !this.#late;
  }

  /** This tab begins to write, and another may have before: the next commit replaces everything, unless it was cleared. */
  async startOver(): Promise<void> {
    const known = this.#stored !== undefined;
    this.#gaveUp = false;
    const there = known && (await this.load()) !== undefined;
    this.#stored = undefined;
    if (known && !there && !this.#late && !this.#gaveUp) this.#outdated();
  }

  /** Stores the whole topic. */
  async replace(put: readonly StoredDocument[], cursor: Cursor): Promise<void> {
    this.#gaveUp = false;
    await this.#write({ replace: true, put, remove: [], cursor });
  }

  /** Adds a change to the stored documents, if possible. */
  async change(put: readonly StoredDocument[], remove: readonly string[], cursor: Cursor): Promise<void> {
    if (this.#stored) await this.#write({ after: this.#stored, put, remove, cursor });
  }

  /** Without waiting for a late storage: then the change is part of the whole topic that is stored next. */
  async #write(change: TopicChange): Promise<void> {
    if (this.#late) this.#stored = undefined;
    else await this.#patiently(COMMIT_PATIENCE_MS, this.#commit(change));
  }

  /** Waits for an operation of the storage for a while. What it finds afterwards does not count. */
  async #patiently<T>(ms: number, work: Promise<T>): Promise<T | undefined> {
    const { environment, log, topic } = this.#options;
    let done = false;
    const noted = work.finally(() => {
      done = true;
      if (this.#late) this.#stored = undefined;
      this.#late = false;
    });
    const result = await withPatience(environment, ms, noted);
    if (done) return result;
    this.#late = true;
    const message = "The storage is slow. The topic continues in memory and is stored completely later.";
    log({ level: "warn", event: "storage_late", message, topic });
    return undefined;
  }

  async #commit(change: TopicChange): Promise<void> {
    const { storage, scope, topic, storing } = this.#options;
    if (!storing()) return;
    try {
      await this.#bounded(storage.commit(scope, topic, change));
      this.#stored = change.cursor;
    } catch (error) {
      // Closed in the meantime.
      if (!storing()) return;
      if (error instanceof KhalaError && error.code === "sequence_conflict") return this.#outdated(error);
      await this.#failed("storage_failed", "The storage failed; the topic continues in memory.", error);
    }
  }

  /** The storage was cleared, as at sign-out, or belongs to another program: the documents in memory must not restore it. */
  #outdated(error?: KhalaError): void {
    const { topic, log } = this.#options;
    this.#stored = undefined;
    this.#gaveUp = true;
    const message = "The stored topic was cleared or changed. It is stored again at the next list.";
    log({ level: "warn", event: "storage_changed", message, topic, ...(error && { error }) });
  }

  async #failed(event: string, message: string, error: unknown): Promise<void> {
    const { storage, scope, topic, log, storing } = this.#options;
    this.#stored = undefined;
    this.#gaveUp = true;
    log({ level: "error", event, message, topic, error });
    if (!storing()) return;
    try {
      await this.#bounded(storage.clear(scope, topic));
    } catch (cause) {
      const text = "The stored topic cannot be removed either.";
      log({ level: "error", event: "storage_not_cleared", message: text, topic, error: cause });
    }
  }

  #bounded<T>(work: Promise<T>): Promise<T> {
    return withStorageTimeout(this.#options.environment, work);
  }
}
