import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";

/** Minimum time between two rounds of notifications: one frame. */
const ROUND_MS = 16;

/** Batches notifications: the first is immediate, later ones are throttled to one round per frame. */
export class Notifier {
  readonly #environment: Environment;
  readonly #log: Log;
  #due = new Set<() => void>();
  #last = Number.NEGATIVE_INFINITY;
  #planned = false;

  constructor(environment: Environment, log: Log) {
    this.#environment = environment;
    this.#log = log;
  }

  /** Calls each listener once in the next round. */
  add(listeners: Iterable<() => void>): void {
    for (const listener of listeners) this.#due.add(listener);
    if (this.#planned || this.#due.size === 0) return;
    this.#planned = true;
    const since = this.#environment.now() - this.#last;
    // The clock may go backwards.
    if (since >= ROUND_MS || since < 0) Promise.resolve().then(() => this.#round());
    else this.#environment.timer(ROUND_MS - since, () => this.#round());
  }

  /** Removes a listener from the next round. */
  delete(listener: () => void): void {
    this.#due.delete(listener);
  }

  #round(): void {
    const due = this.#due;
    this.#due = new Set();
    this.#planned = false;
    this.#last = this.#environment.now();
    for (const listener of due) {
      try {
        listener();
      } catch (error) {
        this.#log({
          level: "error",
          event: "listener_failed",
          message: "A listener of the client threw.",
          error,
        });
      }
    }
  }
}
