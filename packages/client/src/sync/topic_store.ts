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
 * A topic's place in the storage. A failure is reported, not thrown: what is stored of the topic is removed then, and nothing
 * more is written until the topic is written as a whole.
 */
export class TopicStore {
  readonly #options: TopicStoreOptions;
  /** Whether what is stored is what the changes are to be added to. */
  #true = false;
  /** After a failure nothing is written but the whole topic, as it comes from the server. */
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
      await this.#failed("storage_unreadable", "What is stored of the topic cannot be read.", error);
      return undefined;
    }
  }

  /** Whether the next commit must have everything. */
  get needsAll(): boolean {
    return this.#options.storing() && !this.#true && !this.#gaveUp;
  }

  /** Another tab may have written: begins anew with everything. */
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
      // Closed meanwhile: nobody waits for it any more.
      if (!storing()) return;
      await this.#failed("storage_failed", "The storage took no more; the topic goes on in memory.", error);
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
      const text = "What is stored of the topic cannot be removed either; it stays as it was.";
      log({ level: "error", event: "storage_not_cleared", message: text, topic, error: cause });
    }
  }

  #bounded<T>(work: Promise<T>): Promise<T> {
    return withStorageTimeout(this.#options.environment, work);
  }
}
