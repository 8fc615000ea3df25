import { KhalaError } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import { withStorageTimeout } from "../storage/driver_support.ts";
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

/**
 * Stores one topic. A failure is logged, not thrown: the stored topic is removed, and nothing
 * is written until the whole topic can be.
 */
export class TopicStore {
  readonly #options: TopicStoreOptions;
  /** The cursor of what is stored; undefined: changes cannot be added to it. */
  #stored: Cursor | undefined;
  /** After a failure only a full replacement from the server is written. */
  #gaveUp = false;

  constructor(options: TopicStoreOptions) {
    this.#options = options;
  }

  async load(): Promise<StoredTopic | undefined> {
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
    return this.#options.storing() && !this.#stored && !this.#gaveUp;
  }

  /** Another tab may have written: the next commit replaces everything. */
  startOver(): void {
    this.#stored = undefined;
    this.#gaveUp = false;
  }

  /** Stores the whole topic. */
  async replace(put: readonly StoredDocument[], cursor: Cursor): Promise<void> {
    this.#gaveUp = false;
    await this.#commit({ replace: true, put, remove: [], cursor });
  }

  /** Adds a change to what is stored, if it can be added. */
  async change(put: readonly StoredDocument[], remove: readonly string[], cursor: Cursor): Promise<void> {
    if (this.#stored) await this.#commit({ after: this.#stored, put, remove, cursor });
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

  /** What is stored was cleared, as at sign-out, or is another program's: neither is to be undone with what is in memory. */
  #outdated(error: KhalaError): void {
    const { topic, log } = this.#options;
    this.#stored = undefined;
    this.#gaveUp = true;
    const message = "The stored topic was cleared or changed; it is stored again when it is next listed.";
    log({ level: "warn", event: "storage_changed", message, topic, error });
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
