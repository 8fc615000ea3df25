import type { Clock } from "../../kit/clock.ts";

/** Timers take no more than a month. A callback that runs too early checks, and sets it again. */
const MAX_WAIT_MS = 3_600_000;

/** A timer that fires at the earliest of the times it was set to. */
export class DueTimer {
  readonly #clock: Clock;
  readonly #fire: () => void;
  #timer: { readonly at: number; readonly cancel: () => void } | undefined;
  #isStopped = false;

  constructor(clock: Clock, fire: () => void) {
    this.#clock = clock;
    this.#fire = fire;
  }

  /** Fires in `ms` milliseconds, unless it fires earlier. */
  in(ms: number): void {
    const wait = Math.min(Math.max(1, ms), MAX_WAIT_MS);
    const at = this.#clock.now() + wait;
    if (this.#isStopped || (this.#timer && this.#timer.at <= at)) return;
    this.#timer?.cancel();
    const cancel = this.#clock.after(wait, () => {
      this.#timer = undefined;
      this.#fire();
    });
    this.#timer = { at, cancel };
  }

  /** Never fires again. */
  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
  }
}
