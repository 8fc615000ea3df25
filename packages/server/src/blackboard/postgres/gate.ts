import { type Clock, sleep } from "../../kit/clock.ts";
import type { Consumer } from "../board.ts";

/** How long tasks are kept for a gate that closed: a rate lets the next pass soon, a breaker or a pause does not. */
export const KEEP_MS = 1_000;

/** Why nobody waits before a gate any more. */
const CLOSED = "the gate is closed";

/** Asks a consumer's gate whether it is open, without standing before it. */
export class Gate {
  readonly #consumer: Pick<Consumer, "gate">;
  readonly #clock: Clock;

  constructor(consumer: Pick<Consumer, "gate">, clock: Clock) {
    this.#consumer = consumer;
    this.#clock = clock;
  }

  /** Whether more work may be taken now. */
  async isOpen(): Promise<boolean> {
    const waiting = new AbortController();
    let open = false;
    this.#pass(waiting.signal).then((passed) => {
      open = passed;
    });
    await new Promise(setImmediate);
    // This is asked for every commit, and a reason of the signal's own making would hold a stack.
    if (!open) waiting.abort(CLOSED);
    return open;
  }

  /** Whether it opens before so many milliseconds are over, or the signal aborts. */
  async opensWithin(ms: number, signal: AbortSignal): Promise<boolean> {
    const over = new AbortController();
    const either = AbortSignal.any([signal, over.signal]);
    const late = sleep(this.#clock, ms, either).then(() => false);
    const open = await Promise.race([this.#pass(either), late]);
    over.abort(CLOSED);
    return open;
  }

  async #pass(signal: AbortSignal): Promise<boolean> {
    try {
      await this.#consumer.gate(signal);
      return !signal.aborted;
    } catch {
      // Whoever claims meets the same error, and reports it.
      return false;
    }
  }
}

/** What stands before a gate, and who takes it away. */
interface Before<T> {
  /** Whether anything may stand there. */
  isAny(): boolean;
  all(): T[];
  takeBack(left: T[]): Promise<void>;
}

/** Looks after work that was started and still stands before the gate: if that stays closed, others may be well. */
export class Waiting<T> {
  readonly #clock: Clock;
  readonly #gate: Gate;
  readonly #signal: AbortSignal;
  readonly #before: Before<T>;
  #isLooking = false;

  constructor(clock: Clock, gate: Gate, signal: AbortSignal, before: Before<T>) {
    this.#clock = clock;
    this.#gate = gate;
    this.#signal = signal;
    this.#before = before;
  }

  /** Looks from now on until nothing can stand there. */
  look(): void {
    if (this.#isLooking || !this.#before.isAny()) return;
    this.#isLooking = true;
    void this.#look();
  }

  async #look(): Promise<void> {
    while (this.#before.isAny() && !this.#signal.aborted) {
      await sleep(this.#clock, KEEP_MS, this.#signal);
      if (this.#before.all().length === 0 || (await this.#gate.opensWithin(KEEP_MS, this.#signal))) continue;
      const left = this.#signal.aborted ? [] : this.#before.all();
      if (left.length > 0) await this.#before.takeBack(left);
    }
    this.#isLooking = false;
  }
}
