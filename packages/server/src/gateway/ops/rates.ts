/** Turns counters into rates: how much each grew since it was read before. */
export class Rates {
  #at: number;
  readonly #counts = new Map<string, number>();

  /** All of them were 0 at this time. */
  constructor(startedAt: number) {
    this.#at = startedAt;
  }

  /** Reads all counters at one time. A new counter started at `first`; one that fell was reset. */
  at(now: number): (name: string, count: number, first?: number) => number {
    const seconds = Math.max(1, now - this.#at) / 1_000;
    this.#at = now;
    return (name, count, first = 0) => {
      const before = this.#counts.get(name) ?? first;
      this.#counts.set(name, count);
      return rounded(Math.max(0, count - before) / seconds);
    };
  }
}

/** Two decimals. */
export function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}
