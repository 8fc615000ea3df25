import { KhalaError } from "@khala/contracts";

export interface GroupCommitOptions<T> {
  /** Commits a batch; one outcome per item, in order. A rejection fails the whole batch. */
  readonly commit: (items: readonly T[]) => Promise<readonly Outcome[]>;
  readonly sizeOf: (item: T) => number;
  readonly maxItems: number;
  readonly maxBytes: number;
  /** What may wait; beyond it writers are refused at once. */
  readonly maxWaitingBytes: number;
  /** Items with equal keys never share a batch; the later one waits for the next. */
  readonly exclusiveKey?: (item: T) => string;
}

/** What became of one item of a batch. */
export type Outcome = { readonly ok: unknown } | { readonly error: unknown };

interface Waiting<T> {
  readonly item: T;
  readonly bytes: number;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Lets concurrent writers share one commit: what arrives while a commit is under way goes into the next one,
 * and each writer is answered after the commit that holds its item.
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
  write(item: T): Promise<R> {
    const bytes = this.#options.sizeOf(item);
    if (this.#waitingBytes + bytes > this.#options.maxWaitingBytes && this.#waiting.length > 0) {
      return Promise.reject(
        new KhalaError("overloaded", "Too many writes are waiting. Slow down and try again.", {
          retry_after_ms: 200,
        }),
      );
    }
    return new Promise<R>((resolve, reject) => {
      this.#waiting.push({ item, bytes, resolve: resolve as (value: unknown) => void, reject });
      this.#waitingBytes += bytes;
      this.#running ??= this.#run();
    });
  }

  /** Resolves when everything written so far is answered. */
  async drain(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    // Writers that were just answered come back within this turn of the event loop: let them join the next batch.
    await new Promise(setImmediate);
    while (this.#waiting.length > 0) {
      const batch = this.#take();
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
      await new Promise(setImmediate);
    }
    this.#running = undefined;
  }

  #take(): Waiting<T>[] {
    const { maxItems, maxBytes, exclusiveKey } = this.#options;
    const keys = new Set<string>();
    const batch: Waiting<T>[] = [];
    const rest: Waiting<T>[] = [];
    let bytes = 0;
    for (const [index, entry] of this.#waiting.entries()) {
      if (batch.length > 0 && (batch.length >= maxItems || bytes + entry.bytes > maxBytes)) {
        rest.push(...this.#waiting.slice(index));
        break;
      }
      const key = exclusiveKey?.(entry.item);
      if (key !== undefined && keys.has(key)) {
        rest.push(entry);
        continue;
      }
      if (key !== undefined) keys.add(key);
      batch.push(entry);
      bytes += entry.bytes;
    }
    this.#waiting = rest;
    this.#waitingBytes -= bytes;
    return batch;
  }
}
