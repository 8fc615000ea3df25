import { backoff } from "../../kit/backoff.ts";
import type { Context } from "../../kit/context.ts";

/** Closed: all may work. Open: nobody. Half open: one may try. */
export type BreakerState = "closed" | "open" | "half_open";

/** When a breaker opens, and for how long. Times are milliseconds. */
export interface BreakerOptions {
  /** After so many failures without a success in between; 5 unless set. */
  readonly failures?: number;
  /** The first time that it is open, doubled each time that the trial fails, with jitter; 5,000 unless set. */
  readonly base?: number;
  /** 300,000 unless set. */
  readonly cap?: number;
}

/** The leave to work once. Whoever has it says how it went, one time; "dropped": nothing was learnt, others may try. */
export interface Permit {
  said(how: "succeeded" | "failed" | "dropped"): void;
}

/** Keeps an agent that fails all the time from taking, and spoiling, more work. */
export interface Breaker {
  state(): BreakerState;
  /** Resolves when somebody may work, or the signal aborts. */
  ready(signal: AbortSignal): Promise<void>;
  /** A permit, if somebody may work now. */
  enter(): Permit | undefined;
}

/** Opens a breaker, closed. `onChange` hears of every new state. */
export function openBreaker(
  { clock, random }: Pick<Context, "clock" | "random">,
  { failures: limit = 5, base = 5_000, cap = 300_000 }: BreakerOptions = {},
  onChange: (state: BreakerState) => void = () => undefined,
): Breaker {
  let state: BreakerState = "closed";
  let failures = 0;
  /** Times that it opened without having closed. */
  let opened = 0;
  let trying = false;
  /** What began before the last change says nothing about the state after it. */
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
