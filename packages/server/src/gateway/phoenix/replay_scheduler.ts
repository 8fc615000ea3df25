import { KhalaError } from "@khala/contracts";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";

/** Replays the subscriptions of one socket round-robin, a batch each, so that no topic waits for another's history. */
export class ReplayScheduler<S extends { live: boolean; position: bigint }> {
  readonly #context: Context;
  readonly #pull: (subscription: S) => Promise<boolean>;
  readonly #behind = new Map<S, (() => void) | undefined>();
  readonly #stopping = new AbortController();
  #running = false;

  /** `pull` sends one batch and resolves with whether the subscription has caught up; it throws when the database is unreachable. */
  constructor(context: Context, pull: (subscription: S) => Promise<boolean>) {
    this.#context = context;
    this.#pull = pull;
  }

  /** Takes on a subscription that is behind; `onCaughtUp` is called once. */
  add(subscription: S, onCaughtUp?: () => void): void {
    if (!this.#behind.has(subscription)) this.#behind.set(subscription, onCaughtUp);
    if (onCaughtUp) this.start();
  }

  delete(subscription: S): void {
    this.#behind.delete(subscription);
  }

  /** Continues after the outbox was full. */
  start(): void {
    if (this.#running || this.#stopping.signal.aborted) return;
    this.#running = true;
    void this.#run();
  }

  stop(): void {
    this.#stopping.abort();
    this.#behind.clear();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    let failures = 0;
    while (this.#behind.size > 0 && !signal.aborted) {
      let moved = false;
      for (const [subscription, onCaughtUp] of [...this.#behind]) {
        if (signal.aborted || !this.#behind.has(subscription)) continue;
        const before = subscription.position;
        try {
          const done = await this.#pull(subscription);
          failures = 0;
          moved ||= done || subscription.position > before;
          if (!done) continue;
          this.#behind.delete(subscription);
          onCaughtUp?.();
        } catch (error) {
          if (!(error instanceof KhalaError))
            this.#context.log.error({ err: error }, "a replay failed; it is retried");
          await sleep(
            this.#context.clock,
            backoff(failures++, this.#context.random, { base: 100, cap: 2_000 }),
            signal,
          );
          moved = true;
        }
      }
      // No subscription moved: the outbox is full. `onWritable` starts this again.
      if (!moved) break;
      // Batches in memory need no I/O: yield to the other sockets.
      await new Promise(setImmediate);
    }
    this.#running = false;
  }
}
