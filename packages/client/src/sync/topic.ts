import type { KhalaError } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import type { Cursor, StoredDocument } from "../storage/storage.ts";
import { sameCursor } from "./cursor.ts";
import { Documents, type Entry, isUnfetched, type Replacement } from "./documents.ts";
import { WorkSlices } from "./sorted_items.ts";
import type { TopicPhase, TopicSink, Update } from "./source.ts";
import type { TopicStore } from "./topic_store.ts";

export interface TopicOptions {
  readonly store: TopicStore;
  readonly environment: Environment;
  /** Documents changed; without keys, the topic's phase or position. */
  readonly onChange: (keys: readonly string[]) => void;
  /** The newest version of a document must be fetched. */
  readonly onUnfetched: (key: string) => void;
}

/** A topic's documents and position. Changes are applied, then stored, and then the position moves. */
export class Topic implements TopicSink {
  readonly #options: TopicOptions;
  readonly #documents = new Documents();
  /** Sinks of other tabs. */
  readonly #mirrors = new Set<TopicSink>();
  #position: Cursor | undefined;
  #phase: TopicPhase = "loading";
  #error: KhalaError | undefined;
  /** Serialises steps: each is stored before the next begins. */
  #steps: Promise<void> = Promise.resolve();

  constructor(options: TopicOptions) {
    this.#options = options;
  }

  get state(): { readonly phase: TopicPhase; readonly error?: KhalaError } {
    return { phase: this.#phase, ...(this.#error && { error: this.#error }) };
  }

  get documents(): Documents {
    return this.#documents;
  }

  position(): Cursor | undefined {
    return this.#position;
  }

  /** Loads the stored documents. */
  load(): Promise<void> {
    return this.#step(async () => {
      const stored = await this.#options.store.load();
      if (!stored) return;
      const { changed, take } = await this.#replacement(stored.documents);
      take();
      this.#options.onChange(changed);
      this.#position = stored.cursor;
      this.phase("replaying");
      this.#askForUnfetched();
    });
  }

  replace(documents: readonly StoredDocument[], cursor: Cursor): Promise<void> {
    return this.#step(async () => {
      const { changed, take } = await this.#replacement(documents);
      take();
      // In the same step, so that documents and phase `loading` are never shown together.
      const isFirst = this.#phase === "loading";
      if (isFirst) this.#phase = "replaying";
      this.#options.onChange(changed);
      await this.#options.store.replace(documents, cursor);
      this.#position = cursor;
      this.#options.onChange([]);
      for (const mirror of [...this.#mirrors]) {
        await mirror.replace(documents, cursor);
        if (isFirst) mirror.phase(this.#phase, this.#error);
      }
      this.#askForUnfetched();
    });
  }

  apply(updates: readonly Update[], through: Cursor): Promise<void> {
    return this.#step(async () => {
      const put = new Map<string, StoredDocument>();
      for (const update of updates) {
        const stored = this.#documents.update(update);
        if (stored) put.set(stored.key, stored);
      }
      if (put.size === 0 && sameCursor(through, this.#position)) return;
      if (put.size > 0) this.#options.onChange([...put.keys()]);
      const forgotten = this.#documents.forget();
      for (const key of forgotten) put.delete(key);
      await this.#store([...put.values()], forgotten, through);
      this.#position = through;
      for (const mirror of [...this.#mirrors]) await mirror.apply(updates, through);
      for (const key of put.keys()) this.#askFor(this.#documents.get(key));
    });
  }

  phase(phase: TopicPhase, error?: KhalaError): void {
    if (phase === this.#phase && error === this.#error) return;
    this.#phase = phase;
    this.#error = error;
    this.#options.onChange([]);
    for (const mirror of [...this.#mirrors]) mirror.phase(phase, error);
  }

  /** Applies a fetched document. */
  resolve(document: StoredDocument): Promise<void> {
    return this.#step(async () => {
      const stored = this.#documents.resolve(document);
      if (!stored || !this.#position) return;
      this.#options.onChange([stored.key]);
      await this.#store([stored], [], this.#position);
    });
  }

  /** Stores everything: this tab has become the one that writes. */
  storeAll(): Promise<void> {
    return this.#step(async () => {
      await this.#options.store.startOver();
      if (this.#position) await this.#store([], [], this.#position);
    });
  }

  /** Sends the current state and all changes to another sink, until the signal aborts. */
  mirror(sink: TopicSink, signal: AbortSignal): void {
    signal.addEventListener("abort", () => this.#mirrors.delete(sink), { once: true });
    this.#step(async () => {
      if (signal.aborted) return;
      this.#mirrors.add(sink);
      sink.phase(this.#phase, this.#error);
      if (this.#position && !sameCursor(sink.position(), this.#position))
        await sink.replace([...this.#documents.stored()], this.#position);
    });
  }

  async #store(put: readonly StoredDocument[], remove: readonly string[], cursor: Cursor): Promise<void> {
    const { store } = this.#options;
    if (store.needsAll) return store.replace([...this.#documents.stored()], cursor);
    return store.change(put, remove, cursor);
  }

  /** In slices, so that 100,000 documents do not block the page. Steps are serialised, so nothing else changes in between. */
  #replacement(documents: readonly StoredDocument[]): Promise<Replacement> {
    return this.#documents.replacement(documents, new WorkSlices(this.#options.environment));
  }

  #askForUnfetched(): void {
    for (const entry of this.#documents.unfetched()) this.#askFor(entry);
  }

  #askFor(entry: Entry | undefined): void {
    if (entry && isUnfetched(entry)) this.#options.onUnfetched(entry.stored.key);
  }

  #step(work: () => Promise<void>): Promise<void> {
    const done = this.#steps.then(work);
    // The caller gets the failure; the next step runs anyway.
    this.#steps = done.catch(() => {});
    return done;
  }
}
