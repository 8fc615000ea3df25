interface Keyed<K> {
  readonly size: number;
  keys(): Iterator<K>;
}

/**
 * The oldest keys of a map or set that forgets them first. A new iterator has to pass over all that was deleted since the
 * engine last tidied up, up to half of what there is: this one passes over each once.
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
    // One that came to the end stays there, whatever is added.
    this.#keys = this.#all.keys();
    return this.#keys.next().value;
  }
}
