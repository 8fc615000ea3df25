import type { Clock } from "../../kit/clock.ts";

/** How often something may start. */
export interface Rate {
  /** Takes a start, and answers 0; or takes none, and answers after how many milliseconds there may be one. */
  take(): number;
  /** The same without taking one. */
  wait(): number;
}

/** No limit. */
export const UNLIMITED: Rate = { take: () => 0, wait: () => 0 };

/** At most `limit` starts in any `per` milliseconds. */
export function openRate({ limit, per }: { limit: number; per: number }, clock: Clock): Rate {
  /** The last starts, a ring: the oldest is where the next will be written. */
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
