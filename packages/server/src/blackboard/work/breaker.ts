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

/** The permission to run one task. Its holder reports the outcome once; "dropped" does not count. */
export interface Permit {
  said(how: "succeeded" | "failed" | "dropped"): void;
}

/** The circuit breaker of an agent that keeps failing for an org. */
export interface Breaker {
  state(): BreakerState;
  /** Milliseconds until a task may run; 0 if one may run now. */
  wait(): number;
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
  /** How often it has opened since it was last closed. */
  let opened = 0;
  let trying = false;
  let openUntil = 0;
  /** Tasks that started before the last change do not affect the new state. */
  let era = 0;

  function change(to: BreakerState): void {
    state = to;
    era++;
    failures = 0;
    trying = false;
    if (to === "closed") opened = 0;
    if (to === "open") {
      const ms = backoff(opened++, random, { base, cap });
      openUntil = clock.now() + ms;
      clock.after(ms, () => change("half_open"));
    }
    onChange(to);
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

  return {
    state: () => state,
    wait() {
      if (free()) return 0;
      return state === "open" ? Math.max(1, openUntil - clock.now()) : base;
    },
    enter: () => (free() ? permit() : undefined),
  };
}

/** The breakers of an agent, one for each org: failing inputs of one org do not stop the work for others. */
export interface Breakers {
  /** The state for an org; without one, the worst of all. */
  state(org?: string): BreakerState;
  /** The number of orgs whose breaker is not closed. */
  open(): number;
  /** Milliseconds until a task of the org may run; 0 if one may run now. */
  wait(org: string): number;
  /** A permit, if a task of the org may run now. */
  enter(org: string): Permit | undefined;
}

const MAX_ORGS = 1_000;

/** Opens the breakers of an agent. Only orgs whose last tasks failed have one; beyond `maxOrgs` the least recently used closed one is dropped. */
export function openBreakers(
  context: Pick<Context, "clock" | "random">,
  options: BreakerOptions & { readonly maxOrgs?: number } = {},
  onChange: (org: string, state: BreakerState) => void = () => undefined,
): Breakers {
  const { maxOrgs = MAX_ORGS } = options;
  /** Least recently used first. */
  const breakers = new Map<string, Breaker>();

  function used(org: string): Breaker {
    const breaker = breakers.get(org) ?? openBreaker(context, options, (state) => onChange(org, state));
    breakers.delete(org);
    breakers.set(org, breaker);
    if (breakers.size > maxOrgs) breakers.delete(evicted());
    return breaker;
  }

  function evicted(): string {
    for (const [org, breaker] of breakers) if (breaker.state() === "closed") return org;
    return breakers.keys().next().value!;
  }

  const notClosed = () => [...breakers.values()].filter((breaker) => breaker.state() !== "closed");

  return {
    state(org) {
      if (org !== undefined) return breakers.get(org)?.state() ?? "closed";
      const states = notClosed().map((breaker) => breaker.state());
      return states.includes("open") ? "open" : (states[0] ?? "closed");
    },
    open: () => notClosed().length,
    wait: (org) => breakers.get(org)?.wait() ?? 0,
    enter(org) {
      const known = breakers.get(org);
      const permit = known?.enter();
      if (known && !permit) return undefined;
      return {
        said(how) {
          if (permit) permit.said(how);
          // An org without a breaker gets one at its first failure.
          else if (how === "failed") used(org).enter()?.said(how);
          // A closed breaker without failures is the same as none.
          if (how === "succeeded" && known?.state() === "closed") breakers.delete(org);
          else if (how === "failed" && known) used(org);
        },
      };
    },
  };
}
