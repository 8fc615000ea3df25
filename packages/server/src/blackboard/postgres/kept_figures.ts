import type { Clock } from "../../kit/clock.ts";

/** Figures from so many rows on are kept. Smaller ones are always new. */
const MANY = 10_000;
/** For so many times as long as they took: whoever asks all the time has the database count for a twentieth of it. */
const TIMES = 20;
const LEAST_MS = 1_000;
const MOST_MS = 5_000;
const MOST_KEPT = 1_000;

interface Entry<T> {
  readonly value: T;
  readonly at: number;
  readonly forMs: number;
}

export interface KeptFiguresOptions<T> {
  nameOf(value: T): string;
  /** Rows that were read for it; 0 if nobody would look again at what is old. */
  rowsOf(value: T): number;
}

/** Figures by name, of which those that take long to count are kept for a while. */
export class KeptFigures<T> {
  readonly #clock: Clock;
  readonly #options: KeptFiguresOptions<T>;
  readonly #entries = new Map<string, Entry<T>>();

  constructor(clock: Clock, options: KeptFiguresOptions<T>) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Those under these names, in their order; what is not kept is counted now. */
  async get(
    names: readonly string[],
    count: (names: readonly string[]) => Promise<readonly T[]>,
  ): Promise<T[]> {
    const found = new Map<string, T>();
    for (const name of names) {
      const entry = this.#entries.get(name);
      if (entry && this.#isGood(entry)) found.set(name, entry.value);
    }
    const asked = [...new Set(names)].filter((name) => !found.has(name));
    const began = this.#clock.now();
    const counted = asked.length > 0 ? await count(asked) : [];
    for (const value of counted) {
      found.set(this.#options.nameOf(value), value);
      this.#keep(value, this.#clock.now() - began);
    }
    return [...new Set(names)].flatMap((name) => found.get(name) ?? []);
  }

  #keep(value: T, tookMs: number): void {
    const name = this.#options.nameOf(value);
    this.#entries.delete(name);
    if (this.#options.rowsOf(value) < MANY) return;
    if (this.#entries.size >= MOST_KEPT) this.#entries.delete(this.#entries.keys().next().value!);
    const forMs = Math.min(MOST_MS, Math.max(LEAST_MS, TIMES * tookMs));
    this.#entries.set(name, { value, at: this.#clock.now(), forMs });
  }

  /** A clock that was set back makes nothing last longer. */
  #isGood({ at, forMs }: Entry<T>): boolean {
    return Math.abs(this.#clock.now() - at) < forMs;
  }
}
