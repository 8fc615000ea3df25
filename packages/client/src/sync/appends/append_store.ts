import type { Environment } from "../../environment.ts";
import type { Log } from "../../log.ts";
import { isObject, withStorageTimeout } from "../../storage/driver_support.ts";
import type { Storage, StoredDocument, TopicChange } from "../../storage/storage.ts";
import type { PendingAppend } from "./appends_port.ts";

export interface AppendStoreOptions {
  readonly environment: Environment;
  readonly storage: Storage;
  readonly log: Log;
}

/** Runs one operation on the storage after the other. */
type Serialize = <T>(work: () => Promise<T>) => Promise<T>;

/** An append as it is stored. Keys sort as the appends were made. */
export interface StoredAppend extends Pick<PendingAppend, "path" | "id" | "events" | "document"> {
  readonly key: string;
  readonly expectedSeq?: string;
}

/** The storage topic; no sync topic has a colon. */
const TOPIC = "appends:";
const FORMAT = "1";
/** A change that meets another program's is made again. */
const ATTEMPTS = 5;

/** The unsent appends of one person, in the client's storage. Failures are logged: the appends are still in memory. */
export class AppendStore {
  readonly #options: AppendStoreOptions;
  readonly #scope: string;
  readonly #serialize: Serialize;

  constructor(options: AppendStoreOptions, scope: string, serialize: Serialize) {
    this.#options = options;
    this.#scope = scope;
    this.#serialize = serialize;
  }

  /** The stored appends, oldest first. */
  async load(): Promise<readonly StoredAppend[]> {
    const found = await this.#try(
      "storage_unreadable",
      "Stored appends could not be read and are not sent.",
      () => this.#read(),
    );
    const appends = (found?.documents ?? []).flatMap(({ key, version, payload }) =>
      version === FORMAT && isAppend(payload) ? [{ ...payload, key }] : [],
    );
    return appends.sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  put({ key, ...append }: StoredAppend): void {
    // As it is sent: without what JSON leaves out.
    const document = { key, version: FORMAT, hash: "", payload: JSON.parse(JSON.stringify(append)) };
    void this.#try(
      "storage_failed",
      "An append could not be stored: it is lost if the page is closed before it is sent.",
      () => this.#change([document], []),
    );
  }

  remove(key: string): void {
    void this.#try(
      "storage_failed",
      "A sent append could not be removed from the storage: it is sent again, without effect.",
      () => this.#change([], [key]),
    );
  }

  /** One tab at a time where there are locks: the first append of two tabs would replace each other. */
  async #change(put: readonly StoredDocument[], remove: readonly string[]): Promise<void> {
    const { locks } = this.#options.environment;
    const { signal } = new AbortController();
    const work = () => this.#write(put, remove);
    await (locks ? locks.request(`khala.appends ${this.#scope}`, { signal }, work) : work());
  }

  async #write(put: readonly StoredDocument[], remove: readonly string[]): Promise<void> {
    const { environment, storage } = this.#options;
    for (let attempt = 1; ; attempt++) {
      const after = (await this.#read())?.cursor;
      // Nothing to remove: it was cleared.
      if (!after && put.length === 0) return;
      const cursor = { epoch: environment.newId(), watermark: "0" };
      const change: TopicChange = after
        ? { put, remove, cursor, after }
        : { put, remove: [], cursor, replace: true };
      try {
        return await withStorageTimeout(environment, storage.commit(this.#scope, TOPIC, change));
      } catch (error) {
        if (Object(error).code !== "sequence_conflict" || attempt === ATTEMPTS) throw error;
      }
    }
  }

  #read() {
    const { environment, storage } = this.#options;
    return withStorageTimeout(environment, storage.load(this.#scope, TOPIC));
  }

  async #try<T>(event: string, message: string, work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await this.#serialize(work);
    } catch (error) {
      this.#options.log({ level: "error", event, message, error });
      return undefined;
    }
  }
}

function isAppend(value: unknown): value is Omit<StoredAppend, "key"> {
  if (!isObject(value)) return false;
  const { path, id, events } = value;
  const isEvent = (event: unknown) =>
    isObject(event) && typeof event.event_id === "string" && typeof event.type === "string";
  return typeof path === "string" && typeof id === "string" && Array.isArray(events) && events.every(isEvent);
}
