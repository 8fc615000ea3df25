import type { Clock } from "../../kit/clock.ts";

/** A rate limit of starts. */
export interface Rate {
  /** Takes a start and returns 0, or takes none and returns the milliseconds to wait. */
  take(): number;
  /** The milliseconds to wait, without taking a start. */
  wait(): number;
}

/** No limit. */
export const UNLIMITED: Rate = { take: () => 0, wait: () => 0 };

/** A sliding window: at most `limit` starts in any `per` milliseconds. */
export function openRate({ limit, per }: { limit: number; per: number }, clock: Clock): Rate {
  /** A ring buffer of the last starts; the oldest is overwritten next. */
  const starts: number[] = [];
  let next = 0;
  const wait = () => Math.max(0, (starts[next] ?? Number.NEGATIVE_INFINITY) + per - clock.now());
  return {
    wait,
    take() {
      const ms = wait();
      if (ms > 0) return ms;
      starts[next] = clock.now();
      next = (next + 1) % limit;
      return 0;
    },
  };
}
