/** Tasks that will start within this time are worth claiming ahead: more would be kept from other processes. */
const AHEAD_MS = 50;
const MOST_AHEAD = 1_000;

/** How fast the tasks of an agent go, and so how many are worth having. */
export class Pace {
  readonly #concurrency: number;
  /** Milliseconds that a task takes, smoothed. */
  #duration = Number.POSITIVE_INFINITY;

  constructor(concurrency: number) {
    this.#concurrency = concurrency;
  }

  /** A task took so many milliseconds. */
  took(ms: number): void {
    const took = Math.max(0.1, ms);
    this.#duration = Number.isFinite(this.#duration) ? this.#duration * 0.9 + took * 0.1 : took;
  }

  /** How many may wait for their turn here. */
  ahead(): number {
    return Math.min(MOST_AHEAD, Math.floor((this.#concurrency * AHEAD_MS) / Math.max(1, this.#duration)));
  }

  /** How many there may be here at all. */
  limit(): number {
    return this.#concurrency + this.ahead();
  }
}
