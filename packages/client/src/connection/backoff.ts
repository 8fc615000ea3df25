/** An exponential backoff. */
export interface Backoff {
  readonly baseMs: number;
  readonly capMs: number;
}

/** The backoff of the connection. */
export const RECONNECT: Backoff = { baseMs: 500, capMs: 30_000 };

/** Full jitter: a random delay below a ceiling that doubles with each attempt (from 1), after the delay that the server asked for. */
export function backoffMs(attempt: number, random: () => number, backoff: Backoff, atLeastMs = 0): number {
  const ceiling = Math.min(backoff.capMs, backoff.baseMs * 2 ** Math.min(attempt - 1, 20));
  // Added to the requested delay, so that clients do not all come back at once.
  return atLeastMs + Math.round(random() * ceiling);
}
