import { KhalaError } from "@khala/contracts";

/** The calls of an addon's object, which must not be closed while one is under way, nor called after that. */
export class OpenCalls {
  readonly #running = new Set<Promise<unknown>>();
  #closed = false;

  get closed(): boolean {
    return this.#closed;
  }

  /** A call that ends later. */
  async run<T>(call: () => Promise<T>): Promise<T> {
    if (this.#closed) throw new KhalaError("shutting_down", "This Kafka client is closed.");
    const running = call();
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  /** A call that ends at once; it is left out when it comes too late. */
  now(call: () => void): void {
    if (!this.#closed) call();
  }

  /** Refuses more, and waits for what is under way. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.allSettled(this.#running);
  }
}
