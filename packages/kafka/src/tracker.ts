interface Entry {
  readonly offset: number;
  readonly bytes: number;
  finished: boolean;
}

/**
 * The records of a partition that were taken and are not all finished yet. What is committed never passes one that
 * is unfinished, however many behind it are done. Offsets have gaps, where the markers of transactions are.
 */
export class OffsetTracker {
  #entries: Entry[] = [];
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
    let done = 0;
    while (this.#entries[done]?.finished) done++;
    if (done > 0) this.#entries = this.#entries.slice(done);
  }

  /** Where a new owner would have to start, if these were finished too. Undefined before the first record. */
  position(also?: ReadonlySet<number>): number | undefined {
    const lowest = this.#entries.find(({ offset, finished }) => !finished && !also?.has(offset));
    if (lowest) return lowest.offset;
    return this.#next < 0 ? undefined : this.#next;
  }

  /** How many records lie between the lowest unfinished one and the newest. */
  get span(): number {
    return this.#entries.length;
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
