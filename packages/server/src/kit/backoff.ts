import type { Random } from "./ids.ts";

/** Full-jitter exponential backoff: a delay in [0, min(cap, base · 2^attempt)], never below `base / 2`. */
export function backoff(attempt: number, random: Random, { base = 100, cap = 5_000 } = {}): number {
  const ceiling = Math.min(cap, base * 2 ** Math.min(attempt, 30));
  return Math.max(base / 2, random() * ceiling);
}
