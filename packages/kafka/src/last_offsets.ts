const KEPT = 1_024;

/** The offsets of the last records of a partition: between them are markers and what was aborted. */
export class LastOffsets {
  #offsets: number[] = [];

  /** Offsets come in ascending order. */
  add(offset: number): void {
    this.#offsets.push(offset);
    if (this.#offsets.length >= KEPT * 2) this.#offsets = this.#offsets.slice(-KEPT);
  }

  /** How many records are at an offset or behind it; of those that are not kept, how many offsets. */
  countFrom(offset: number, end: number): number {
    const [oldest] = this.#offsets;
    if (oldest === undefined) return Math.max(0, end - offset);
    if (offset < oldest) return oldest - offset + this.#offsets.length;
    let [low, high] = [0, this.#offsets.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#offsets[middle]! < offset) low = middle + 1;
      else high = middle;
    }
    return this.#offsets.length - low;
  }
}
