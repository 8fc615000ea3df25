import { KhalaError } from "@khala/contracts";

/** The calls of an addon's object, which must not be closed during a call, nor called after that. */
export class OpenCalls {
  readonly #running = new Set<Promise<unknown>>();
  #closed = false;

  get closed(): boolean {
    return this.#closed;
  }

  /** Runs an asynchronous call. */
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

  /** Runs a synchronous call; skips it after closing. */
  now(call: () => void): void {
    if (!this.#closed) call();
  }

  /** Refuses further calls, and waits for running ones. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.allSettled(this.#running);
  }
}
