import type { Clock } from "../../kit/clock.ts";

/** Timers take no more than a month; whoever is woken too early looks, and sets it again. */
const FURTHEST_MS = 3_600_000;

/** Rings at the earliest of the times that it was set to. */
export class Alarm {
  readonly #clock: Clock;
  readonly #ring: () => void;
  #timer: { readonly at: number; readonly cancel: () => void } | undefined;
  #stopped = false;

  constructor(clock: Clock, ring: () => void) {
    this.#clock = clock;
    this.#ring = ring;
  }

  /** Rings in so many milliseconds, if it does not before. */
  in(ms: number): void {
    const wait = Math.min(Math.max(1, ms), FURTHEST_MS);
    const at = this.#clock.now() + wait;
    if (this.#stopped || (this.#timer && this.#timer.at <= at)) return;
    this.#timer?.cancel();
    const cancel = this.#clock.after(wait, () => {
      this.#timer = undefined;
      this.#ring();
    });
    this.#timer = { at, cancel };
  }

  /** Never rings again. */
  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }
}
