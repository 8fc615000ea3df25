import { type Entry, isUnfetched } from "./documents.ts";
import type { ListSnapshot, Snapshot } from "./plane_port.ts";
import type { Topic } from "./topic.ts";

/** What is shown of a topic that nobody follows. */
export const UNFOLLOWED: Snapshot<never> & ListSnapshot<never> = Object.freeze({
  phase: "loading",
  stale: false,
  items: Object.freeze([]),
});

/** A topic as screens read it: snapshots that stay the same objects until something changed, and whom to tell. */
export class TopicView {
  readonly #snapshots = new WeakMap<Entry, Snapshot>();
  /** Of every document that there is not. */
  #absent: Snapshot = UNFOLLOWED;
  readonly #listeners = new Set<() => void>();
  readonly #keyListeners = new Map<string, Set<() => void>>();
  #list: ListSnapshot = UNFOLLOWED;

  /** Adds a listener to all of it, or to one document. */
  listen(key: string | undefined, listener: () => void): () => void {
    if (key === undefined) {
      this.#listeners.add(listener);
      return () => this.#listeners.delete(listener);
    }
    const listeners = this.#keyListeners.get(key) ?? new Set();
    this.#keyListeners.set(key, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#keyListeners.get(key) === listeners) this.#keyListeners.delete(key);
    };
  }

  /** Whom a change concerns; without keys it is about the topic as a whole. */
  *concerned(keys: readonly string[]): Iterable<() => void> {
    yield* this.#listeners;
    if (keys.length === 0) for (const listeners of this.#keyListeners.values()) yield* listeners;
    else if (this.#keyListeners.size > 0) for (const key of keys) yield* this.#keyListeners.get(key) ?? [];
  }

  get(topic: Topic, key: string): Snapshot {
    const entry = topic.documents.get(key);
    const before = entry ? this.#snapshots.get(entry) : this.#absent;
    const { phase, error } = topic.state;
    if (before?.phase === phase && before.error === error) return before;
    const shown = entry?.item && { data: entry.item.data, version: entry.item.version };
    const stale = entry !== undefined && isUnfetched(entry);
    const snapshot: Snapshot = { ...shown, phase, ...(error && { error }), stale };
    if (entry) this.#snapshots.set(entry, snapshot);
    else this.#absent = snapshot;
    return snapshot;
  }

  list(topic: Topic): ListSnapshot {
    const items = topic.documents.items();
    const { phase, error } = topic.state;
    const { items: shown, phase: shownPhase, error: shownError } = this.#list;
    if (shown !== items || shownPhase !== phase || shownError !== error)
      this.#list = { items, phase, ...(error && { error }) };
    return this.#list;
  }
}
