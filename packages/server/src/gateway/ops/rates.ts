import { rounded } from "./process_figures.ts";

/** Turns counters into rates: how much each grew since it was last looked at. */
export class Rates {
  #at: number;
  readonly #counts = new Map<string, number>();

  /** All of them were 0 at this time. */
  constructor(startedAt: number) {
    this.#at = startedAt;
  }

  /** A look at all counters at one time. One that is new was at `first`, and one that fell began anew. */
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
