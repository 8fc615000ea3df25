import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";

/** No more than one round of notifications in this time: a frame of a screen. */
const ROUND_MS = 16;

/** Collects changes, and tells of them together: the first at once, those of a busy time once a frame. */
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

  /** Calls a listener in the next round, once however often it is asked for. */
  add(listeners: Iterable<() => void>): void {
    for (const listener of listeners) this.#due.add(listener);
    if (this.#planned || this.#due.size === 0) return;
    this.#planned = true;
    const since = this.#environment.now() - this.#last;
    // A clock that was put back is no reason to wait.
    if (since >= ROUND_MS || since < 0) Promise.resolve().then(() => this.#round());
    else this.#environment.timer(ROUND_MS - since, () => this.#round());
  }

  /** Forgets a listener that is not wanted any more. */
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
