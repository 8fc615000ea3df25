/** Lets a fixed number of calls run at a time, in the order of asking. */
export class Turns {
  readonly #waiting: (() => void)[] = [];
  readonly #running = new Set<{ readonly since: number }>();
  #free: number;

  constructor(limit: number) {
    this.#free = limit;
  }

  async run<T>(call: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    const turn = { since: performance.now() };
    this.#running.add(turn);
    try {
      return await call();
    } finally {
      this.#running.delete(turn);
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }

  /** How long the longest has been running, in milliseconds; 0 when none is. */
  get longest(): number {
    const [first] = this.#running;
    return first ? performance.now() - first.since : 0;
  }
}
