import type { Clock } from "./clock.ts";

interface Round {
  /** How often each is looked at. */
  readonly everyMs: number;
  /** How many at once, at the most: all together would keep everything else waiting. */
  readonly atOnce: number;
}

/** Looks at each of a set once in a while, a few at a time, with one timer for all. Returns what ends it. */
export function lookAround<T>(
  clock: Clock,
  all: ReadonlySet<T>,
  { everyMs, atOnce }: Round,
  look: (each: T, now: number) => void,
): () => void {
  let round = all.values();
  let cancel = clock.after(everyMs, go);

  function next(): T | undefined {
    const { done, value } = round.next();
    if (!done) return value;
    round = all.values();
    return round.next().value;
  }

  function go(): void {
    const now = clock.now();
    const parts = Math.max(1, Math.ceil(all.size / atOnce));
    for (let left = Math.ceil(all.size / parts); left > 0 && all.size > 0; left--) look(next()!, now);
    cancel = clock.after(everyMs / parts, go);
  }

  return () => cancel();
}
