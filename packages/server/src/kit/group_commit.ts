import { KhalaError } from "@khala/contracts";

export interface GroupCommitOptions<T> {
  /** Commits a batch and returns one outcome per item, in order. A rejection fails the whole batch. */
  readonly commit: (items: readonly T[]) => Promise<readonly Outcome[]>;
  readonly sizeOf: (item: T) => number;
  /** The number of items it counts as; one by default. */
  readonly countOf?: (item: T) => number;
  readonly maxItems: number;
  readonly maxBytes: number;
  /** The most bytes in the queue; further writes are refused with `overloaded`. */
  readonly maxWaitingBytes: number;
  /** Items with equal keys never share a batch: the later one goes into the next batch. */
  readonly exclusiveKey?: (item: T) => string;
}

/** The result of one item of a batch. */
export type Outcome = { readonly ok: unknown } | { readonly error: unknown };

interface Waiting<T> {
  readonly item: T;
  readonly bytes: number;
  readonly count: number;
  readonly key: string | undefined;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Group commit: items written while a commit runs share the next one. Each writer is answered after the commit that
 * contains its item.
 */
export class GroupCommit<T, R> {
  readonly #options: GroupCommitOptions<T>;
  #waiting: Waiting<T>[] = [];
  #waitingBytes = 0;
  #running: Promise<void> | undefined;

  constructor(options: GroupCommitOptions<T>) {
    this.#options = options;
  }

  /** Resolves with the item's result once it is committed. */
  async write(item: T): Promise<R> {
    // All callbacks run here: one that throws fails this writer, and no other.
    const { sizeOf, countOf, exclusiveKey } = this.#options;
    const bytes = sizeOf(item);
    const entry = {
      item,
      bytes,
      count: countOf?.(item) ?? 1,
      key: exclusiveKey?.(item),
    };
    if (this.#waitingBytes + bytes > this.#options.maxWaitingBytes && this.#waiting.length > 0) {
      throw new KhalaError("overloaded", "Too many writes are queued. Try again in a moment.", {
        retry_after_ms: 200,
      });
    }
    return new Promise<R>((resolve, reject) => {
      this.#waiting.push({ ...entry, resolve: resolve as (value: unknown) => void, reject });
      this.#waitingBytes += bytes;
      this.#running ??= this.#run();
    });
  }

  /** Resolves when everything written so far is answered. */
  async drain(): Promise<void> {
    while (this.#running) await this.#running;
  }

  async #run(): Promise<void> {
    try {
      // Writers that were just answered often write again in this tick: let them join the next batch.
      await new Promise(setImmediate);
      while (this.#waiting.length > 0) {
        await this.#commit(this.#take());
        await new Promise(setImmediate);
      }
    } catch (error) {
      // Nobody awaits this function: a writer left in the queue would never be answered.
      this.#waitingBytes = 0;
      for (const entry of this.#waiting.splice(0)) entry.reject(error);
    } finally {
      this.#running = undefined;
    }
  }

  async #commit(batch: readonly Waiting<T>[]): Promise<void> {
    try {
      const outcomes = await this.#options.commit(batch.map((entry) => entry.item));
      batch.forEach((entry, i) => {
        const outcome = outcomes[i]!;
        if ("error" in outcome) entry.reject(outcome.error);
        else entry.resolve(outcome.ok);
      });
    } catch (error) {
      for (const entry of batch) entry.reject(error);
    }
  }

  #take(): Waiting<T>[] {
    const { maxItems, maxBytes } = this.#options;
    const keys = new Set<string>();
    const batch: Waiting<T>[] = [];
    const skipped: Waiting<T>[] = [];
    let end = 0;
    let bytes = 0;
    let count = 0;
    for (const entry of this.#waiting) {
      const isFull = batch.length > 0 && (count >= maxItems || bytes + entry.bytes > maxBytes);
      if (isFull) break;
      end++;
      const { key } = entry;
      if (key !== undefined && keys.has(key)) {
        skipped.push(entry);
        continue;
      }
      if (key !== undefined) keys.add(key);
      batch.push(entry);
      count += entry.count;
      bytes += entry.bytes;
    }
    this.#waiting.splice(0, end);
    // Not as arguments of one call: a long queue would overflow the stack.
    if (skipped.length > 0) this.#waiting = skipped.concat(this.#waiting);
    this.#waitingBytes -= bytes;
    return batch;
  }
}
