/** How long to wait before an attempt. */
export interface Backoff {
  readonly baseMs: number;
  readonly capMs: number;
}

/** The connection's. */
export const RECONNECT: Backoff = { baseMs: 500, capMs: 30_000 };

/** Full jitter: anything up to a ceiling that doubles with each attempt (the first is 1); never less than the server asked for. */
export function backoffMs(attempt: number, random: () => number, backoff: Backoff, atLeastMs = 0): number {
  const ceiling = Math.min(backoff.capMs, backoff.baseMs * 2 ** Math.min(attempt - 1, 20));
  // Spread behind what was asked for, so that not all come back in the same moment.
  return atLeastMs + Math.round(random() * ceiling);
}
