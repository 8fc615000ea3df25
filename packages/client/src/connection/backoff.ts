/** An exponential backoff. */
export interface Backoff {
  readonly baseMs: number;
  readonly capMs: number;
  /** The least ceiling from the second attempt on. */
  readonly laterMs?: number;
}

/**
 * The backoff of the connection. A single lost line is back at once. When that fails too, the server is down, and everybody waits
 * for it: they return over seconds. A server that stops announces a delay to each socket.
 */
export const RECONNECT: Backoff = { baseMs: 500, capMs: 30_000, laterMs: 5_000 };

/** Full jitter: a random delay below a ceiling that doubles with each attempt (from 1), after the delay that the server asked for. */
export function backoffMs(attempt: number, random: () => number, backoff: Backoff, atLeastMs = 0): number {
  const doubled = backoff.baseMs * 2 ** Math.min(attempt - 1, 20);
  const ceiling = Math.min(backoff.capMs, attempt > 1 ? Math.max(backoff.laterMs ?? 0, doubled) : doubled);
  // Added to the requested delay, so that clients do not all come back at once.
  return atLeastMs + Math.round(random() * ceiling);
}
