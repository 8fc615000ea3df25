import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import { withStorageTimeout } from "../storage/driver_support.ts";
import type { Storage, StoredTopic, TopicChange } from "../storage/storage.ts";

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
  /** Whether changes can be added to the stored state. */
  #true = false;
  /** After a failure only a full replacement from the server is written. */
  #gaveUp = false;

  constructor(options: TopicStoreOptions) {
    this.#options = options;
  }

  async load(): Promise<StoredTopic | undefined> {
    const { storage, scope, topic } = this.#options;
    try {
      const stored = await this.#bounded(storage.load(scope, topic));
      this.#true = stored !== undefined;
      return stored;
    } catch (error) {
      await this.#failed("storage_unreadable", "The stored topic cannot be read.", error);
      return undefined;
    }
  }

  /** Whether the next commit must contain the whole topic. */
  get needsAll(): boolean {
    return this.#options.storing() && !this.#true && !this.#gaveUp;
  }

  /** Another tab may have written: the next commit replaces everything. */
  startOver(): void {
    this.#true = false;
    this.#gaveUp = false;
  }

  async commit(change: TopicChange): Promise<void> {
    const { storage, scope, topic, storing } = this.#options;
    if (change.replace) this.#gaveUp = false;
    if (!storing() || (!change.replace && !this.#true)) return;
    try {
      await this.#bounded(storage.commit(scope, topic, change));
      this.#true = true;
    } catch (error) {
      // Closed in the meantime.
      if (!storing()) return;
      await this.#failed("storage_failed", "The storage failed; the topic continues in memory.", error);
    }
  }

  async #failed(event: string, message: string, error: unknown): Promise<void> {
    const { storage, scope, topic, log, storing } = this.#options;
    this.#true = false;
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
