import type { Clock } from "./clock.ts";

interface Rotation {
  /** How often each item is visited. */
  readonly everyMs: number;
  /** The most items per timer tick: visiting all at once would block the event loop. */
  readonly batchSize: number;
}

/** Visits each item of a set every `everyMs`, a batch at a time, with one timer for all. Returns a function that stops it. */
export function visitInRotation<T>(
  clock: Clock,
  items: ReadonlySet<T>,
  { everyMs, batchSize }: Rotation,
  visit: (item: T, now: number) => void,
): () => void {
  let iterator = items.values();
  let cancel = clock.after(everyMs, tick);

  function next(): T | undefined {
    const { done, value } = iterator.next();
    if (!done) return value;
    iterator = items.values();
    return iterator.next().value;
  }

  function tick(): void {
    const now = clock.now();
    const batches = Math.max(1, Math.ceil(items.size / batchSize));
    for (let left = Math.ceil(items.size / batches); left > 0 && items.size > 0; left--) visit(next()!, now);
    cancel = clock.after(everyMs / batches, tick);
  }

  return () => cancel();
}
