import { type Clock, sleep } from "../../kit/clock.ts";
import type { Consumer } from "../board.ts";

/** How long claimed tasks are kept when the gate closes: a rate limit opens soon, a breaker or a pause does not. */
export const KEEP_MS = 1_000;

/** Aborts a check of the gate. A reason of its own would hold a stack, and this is done for every claim. */
const CLOSED = "the gate is closed";

/** Asks a consumer's gate whether it is open, without waiting for it. */
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
    if (!open) waiting.abort(CLOSED);
    return open;
  }

  /** Whether it opens within `ms` milliseconds, and before the signal aborts. */
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
      // The next claim meets the same error, and reports it.
      return false;
    }
  }
}

/** Started work that may still wait for the gate, and how it is requeued. */
interface NotBegun<T> {
  /** Whether there may be any. */
  isAny(): boolean;
  all(): T[];
  requeue(left: T[]): Promise<void>;
}

/** Watches work that was started and still waits for the gate. If that stays closed, another process may be able to do it. */
export class GateWatch<T> {
  readonly #clock: Clock;
  readonly #gate: Gate;
  readonly #signal: AbortSignal;
  readonly #notBegun: NotBegun<T>;
  #isWatching = false;

  constructor(clock: Clock, gate: Gate, signal: AbortSignal, notBegun: NotBegun<T>) {
    this.#clock = clock;
    this.#gate = gate;
    this.#signal = signal;
    this.#notBegun = notBegun;
  }

  /** Watches from now on until no work can be waiting. */
  start(): void {
    if (this.#isWatching || !this.#notBegun.isAny()) return;
    this.#isWatching = true;
    void this.#watch();
  }

  async #watch(): Promise<void> {
    while (this.#notBegun.isAny() && !this.#signal.aborted) {
      await sleep(this.#clock, KEEP_MS, this.#signal);
      if (this.#notBegun.all().length === 0 || (await this.#gate.opensWithin(KEEP_MS, this.#signal)))
        continue;
      const left = this.#signal.aborted ? [] : this.#notBegun.all();
      if (left.length > 0) await this.#notBegun.requeue(left);
    }
    this.#isWatching = false;
  }
}
