import type { Context } from "../../kit/context.ts";
import type { News, Position, Watcher } from "./log.ts";

/** Who watches which stream in this process. */
export class Watchers {
  readonly #context: Pick<Context, "log">;
  readonly #byStream = new Map<string, Set<{ readonly watcher: Watcher }>>();

  constructor(context: Pick<Context, "log">) {
    this.#context = context;
  }

  /** Adds one; the answer takes it away again. */
  add(stream: string, watcher: Watcher): () => void {
    // A place of its own, because the same watcher may be there twice.
    const place = { watcher };
    const places = this.#byStream.get(stream) ?? new Set();
    this.#byStream.set(stream, places.add(place));
    return () => {
      if (places.delete(place) && places.size === 0) this.#byStream.delete(stream);
    };
  }

  has(stream: string): boolean {
    return this.#byStream.has(stream);
  }

  /** From where to read for all who watch a stream; undefined when one of them wants to read by itself. */
  position(stream: string): Position | undefined {
    let least: Position | undefined;
    for (const { watcher } of this.#byStream.get(stream) ?? []) {
      const position = watcher.position?.();
      if (!position) return undefined;
      if (!least || position.seq < least.seq) least = position;
    }
    return least;
  }

  news(stream: string, news: News): void {
    this.#tell(stream, news);
  }

  missed(stream: string): void {
    this.#tell(stream);
  }

  allMissed(): void {
    for (const stream of [...this.#byStream.keys()]) this.missed(stream);
  }

  /** Tells of news, or that there may be some. */
  #tell(stream: string, news?: News): void {
    const places = this.#byStream.get(stream);
    if (!places) return;
    for (const { watcher } of places) {
      try {
        if (news) watcher.news(news);
        else watcher.missed();
      } catch (error) {
        // It is committed: what a watcher does wrong is neither the writer's problem nor the next watcher's.
        this.#context.log.error({ err: error }, "a watcher of a log failed");
      }
    }
  }
}
