import type { Context } from "../../kit/context.ts";
import type { Appended, Position, Watcher } from "./log.ts";

/** The watchers of this process, by stream. */
export class Watchers {
  readonly #context: Pick<Context, "log">;
  readonly #byStream = new Map<string, Set<{ readonly watcher: Watcher }>>();

  constructor(context: Pick<Context, "log">) {
    this.#context = context;
  }

  /** Adds a watcher; the returned function removes it. */
  add(stream: string, watcher: Watcher): () => void {
    // Wrapped, because the same watcher may be added twice.
    const registration = { watcher };
    const registrations = this.#byStream.get(stream) ?? new Set();
    this.#byStream.set(stream, registrations.add(registration));
    return () => {
      if (registrations.delete(registration) && registrations.size === 0) this.#byStream.delete(stream);
    };
  }

  has(stream: string): boolean {
    return this.#byStream.has(stream);
  }

  /** The lowest position of a stream's watchers; undefined when one of them reads by itself. */
  position(stream: string): Position | undefined {
    let lowest: Position | undefined;
    for (const { watcher } of this.#byStream.get(stream) ?? []) {
      const position = watcher.position?.();
      if (!position) return undefined;
      if (!lowest || position.seq < lowest.seq) lowest = position;
    }
    return lowest;
  }

  appended(stream: string, appended: Appended): void {
    this.#notify(stream, appended);
  }

  missed(stream: string): void {
    this.#notify(stream);
  }

  allMissed(): void {
    for (const stream of [...this.#byStream.keys()]) this.missed(stream);
  }

  /** Calls `appended`, or `missed` without entries. */
  #notify(stream: string, appended?: Appended): void {
    for (const { watcher } of this.#byStream.get(stream) ?? []) {
      try {
        if (appended) watcher.appended(appended);
        else watcher.missed();
      } catch (error) {
        // The entries are committed: a failing watcher must not affect the writer or the other watchers.
        this.#context.log.error({ err: error }, "a watcher of a log failed");
      }
    }
  }
}
