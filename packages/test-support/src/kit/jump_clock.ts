import type { Clock } from "../../../server/src/kit/clock.ts";

interface Timer {
  readonly at: number;
  readonly leapOnly: boolean;
  readonly fn: () => void;
  cancel: () => void;
}

/**
 * The machine's clock, which a test can also put forward: for servers that do real work while time leaps. Timers of
 * exactly `leapOnlyMs` go off only in a leap, however slow the machine is.
 */
export class JumpClock implements Clock {
  #ahead = 0;
  readonly #timers = new Set<Timer>();
  readonly #leapOnlyMs: number | undefined;

  constructor({ leapOnlyMs }: { readonly leapOnlyMs?: number } = {}) {
    this.#leapOnlyMs = leapOnlyMs;
  }

  readonly now = (): number => Date.now() + this.#ahead;

  after(ms: number, fn: () => void): () => void {
    const timer: Timer = {
      at: this.now() + ms,
      leapOnly: ms === this.#leapOnlyMs,
      fn,
      cancel: () => {},
    };
    this.#arm(timer);
    return () => {
      timer.cancel();
      this.#timers.delete(timer);
    };
  }

  /** Puts the clock forward and fires, in order, the timers that are due. */
  jump(ms: number): void {
    this.#ahead += ms;
    const waiting = [...this.#timers].sort((a, b) => a.at - b.at);
    for (const timer of waiting) {
      if (!this.#timers.has(timer)) continue;
      timer.cancel();
      if (timer.at <= this.now()) this.#fire(timer);
      else this.#arm(timer);
    }
  }

  #arm(timer: Timer): void {
    this.#timers.add(timer);
    if (timer.leapOnly) return;
    const handle = setTimeout(() => this.#fire(timer), Math.max(0, timer.at - this.now()));
    handle.unref();
    timer.cancel = () => clearTimeout(handle);
  }

  #fire(timer: Timer): void {
    this.#timers.delete(timer);
    timer.fn();
  }
}
