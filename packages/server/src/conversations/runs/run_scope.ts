import { AsyncLocalStorage } from "node:async_hooks";

const current = new AsyncLocalStorage<RunScope>();

/**
 * Attributes what an engine or a tool starts to its run: rejections that nothing awaits, and throws in timers. It holds
 * nothing of the run after the end, because timers and connections that the engine opened may live longer.
 */
export class RunScope {
  #onStray: (error: unknown) => void;
  readonly #afterEnd: (error: unknown) => void;

  constructor(onStray: (error: unknown) => void, afterEnd: (error: unknown) => void) {
    this.#onStray = onStray;
    this.#afterEnd = afterEnd;
  }

  /** Calls a function of the engine. */
  enter<T>(work: () => T): T {
    return current.run(this, work);
  }

  /** A stray error of this run. */
  stray(error: unknown): void {
    this.#onStray(error);
  }

  /** The run has ended. */
  end(): void {
    this.#onStray = this.#afterEnd;
  }
}

/** The run to which the executing code belongs. */
export function currentRun(): RunScope | undefined {
  return current.getStore();
}
