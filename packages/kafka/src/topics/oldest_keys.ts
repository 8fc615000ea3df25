interface Keyed<K> {
  readonly size: number;
  keys(): Iterator<K>;
}

/**
 * The oldest keys of a map or set that evicts them first. A new iterator has to skip everything deleted since the
 * engine last compacted the map, up to half of it: this one skips each entry once.
 */
export class OldestKeys<K> {
  readonly #all: Keyed<K>;
  #keys: Iterator<K>;

  constructor(all: Keyed<K>) {
    this.#all = all;
    this.#keys = all.keys();
  }

  /** The oldest key, which the caller must delete before it asks again; undefined if there is none. */
  next(): K | undefined {
    if (this.#all.size === 0) return undefined;
    const found = this.#keys.next();
    if (!found.done) return found.value;
    // An iterator that reached the end stays there, whatever is added.
    this.#keys = this.#all.keys();
    return this.#keys.next().value;
  }
}
