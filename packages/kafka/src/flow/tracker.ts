interface Entry {
  readonly offset: number;
  readonly bytes: number;
  finished: boolean;
}

/** How many that are finished may be kept, so that the list is not copied for each. */
const KEPT = 256;

/**
 * The records of a partition that were taken and are not all finished yet. What is committed never passes one that
 * is unfinished, however many behind it are done. Offsets have gaps, where the markers of transactions are.
 */
export class OffsetTracker {
  #entries: Entry[] = [];
  /** Those of the entries before this one are finished. */
  #first = 0;
  readonly #open = new Map<number, Entry>();
  #next = -1;
  #bytes = 0;

  /** Takes a record. False for one that was taken before: a reader that seeks may bring it twice. */
  take(offset: number, bytes: number): boolean {
    if (offset < this.#next) return false;
    const entry = { offset, bytes, finished: false };
    this.#entries.push(entry);
    this.#open.set(offset, entry);
    this.#next = offset + 1;
    this.#bytes += bytes;
    return true;
  }

  /** Notes that nothing more is to be done for a record. */
  finish(offset: number): void {
    const entry = this.#open.get(offset);
    if (!entry) return;
    entry.finished = true;
    this.#bytes -= entry.bytes;
    this.#open.delete(offset);
    while (this.#entries[this.#first]?.finished) this.#first++;
    if (this.#first < KEPT && this.#first < this.#entries.length) return;
    this.#entries = this.#entries.slice(this.#first);
    this.#first = 0;
  }

  /** Where a new owner would have to start, if these were finished too. Undefined before the first record. */
  position(also?: ReadonlySet<number>): number | undefined {
    for (let i = this.#first; i < this.#entries.length; i++) {
      const { offset, finished } = this.#entries[i]!;
      if (!finished && !also?.has(offset)) return offset;
    }
    return this.#next < 0 ? undefined : this.#next;
  }

  /** How many records lie between the lowest unfinished one and the newest. */
  get span(): number {
    return this.#entries.length - this.#first;
  }

  /** How many are unfinished. */
  get open(): number {
    return this.#open.size;
  }

  /** The size of what is unfinished. */
  get bytes(): number {
    return this.#bytes;
  }
}
