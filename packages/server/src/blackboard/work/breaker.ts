import { backoff } from "../../kit/backoff.ts";
import type { Context } from "../../kit/context.ts";

/** Closed: tasks run. Open: none run. Half open: one trial runs. */
export type BreakerState = "closed" | "open" | "half_open";

/** When a breaker opens, and for how long. Times are milliseconds. */
export interface BreakerOptions {
  /** Consecutive failures that open it; default 5. */
  readonly failures?: number;
  /** The first open interval, doubled after each failed trial, with jitter; default 5,000. */
  readonly base?: number;
  /** The longest open interval; default 300,000. */
  readonly cap?: number;
}

/** The permission to run one task. Its holder reports the outcome once; "dropped" says nothing about the agent's health. */
export interface Permit {
  said(how: "succeeded" | "failed" | "dropped"): void;
}

/** The circuit breaker of an agent that keeps failing. */
export interface Breaker {
  state(): BreakerState;
  /** Resolves when a task may run, or the signal aborts. */
  ready(signal: AbortSignal): Promise<void>;
  /** A permit, if a task may run now. */
  enter(): Permit | undefined;
}

/** Opens a breaker in the closed state. `onChange` is called with every new state. */
export function openBreaker(
  { clock, random }: Pick<Context, "clock" | "random">,
  { failures: limit = 5, base = 5_000, cap = 300_000 }: BreakerOptions = {},
  onChange: (state: BreakerState) => void = () => undefined,
): Breaker {
  let state: BreakerState = "closed";
  let failures = 0;
  /** How often it opened since it was last closed. */
  let opened = 0;
  let trying = false;
  /** Tasks that started before the last change do not affect the new state. */
  let era = 0;
  const waiters = new Set<() => void>();

  function change(to: BreakerState): void {
    state = to;
    era++;
    failures = 0;
    trying = false;
    if (to === "closed") opened = 0;
    if (to === "open") clock.after(backoff(opened++, random, { base, cap }), () => change("half_open"));
    onChange(to);
    wake();
  }

  function wake(): void {
    for (const waiter of [...waiters]) waiter();
  }

  const free = () => state === "closed" || (state === "half_open" && !trying);

  const hear = {
    succeeded() {
      failures = 0;
      if (state === "half_open") change("closed");
    },
    failed() {
      if (state === "half_open" || ++failures >= limit) change("open");
    },
    dropped() {
      trying = false;
      wake();
    },
  };

  function permit(): Permit {
    const from = era;
    let open = true;
    if (state === "half_open") trying = true;
    return {
      said(how) {
        if (open && from === era) hear[how]();
        open = false;
      },
    };
  }

  function changed(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        waiters.delete(done);
        signal.removeEventListener("abort", done);
        resolve();
      };
      waiters.add(done);
      signal.addEventListener("abort", done, { once: true });
    });
  }

  return {
    state: () => state,
    async ready(signal) {
      while (!free() && !signal.aborted) await changed(signal);
    },
    enter: () => (free() ? permit() : undefined),
  };
}
