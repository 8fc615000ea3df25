import type { Clock } from "../kit/clock.ts";

/** An attempt took longer than its agent allows. */
export class TimeoutError extends Error {
  override readonly name = "TimeoutError";
}

/** How long work may take. Times are milliseconds. */
export interface Supervision {
  readonly clock: Clock;
  /** No limit if it is undefined. */
  readonly timeoutMs: number | undefined;
  /** How long work may go on after it was told to stop, before nobody waits for it any more. */
  readonly graceMs: number;
  /** Hears of work that did not stop in time. */
  onAbandoned(): void;
}

/**
 * Runs work with a signal that aborts when time is up, or the caller's does. What work answers after that is not
 * believed: many end early, without an error, when they are told to stop.
 */
export async function supervise<T>(
  work: (signal: AbortSignal) => Promise<T> | T,
  signal: AbortSignal,
  { clock, timeoutMs, graceMs, onAbandoned }: Supervision,
): Promise<T> {
  const stop = new AbortController();
  const timers: (() => void)[] = [];
  const abandoned = new Promise<never>((_, reject) => {
    stop.signal.addEventListener("abort", () => {
      const abandon = () => {
        onAbandoned();
        reject(stop.signal.reason);
      };
      timers.push(clock.after(graceMs, abandon));
    });
  });
  const lost = () => stop.abort(signal.reason);
  if (signal.aborted) lost();
  signal.addEventListener("abort", lost, { once: true });
  if (timeoutMs !== undefined) {
    const late = () => stop.abort(new TimeoutError(`The attempt took longer than ${timeoutMs} ms.`));
    timers.push(clock.after(timeoutMs, late));
  }
  try {
    const result = await Promise.race([(async () => work(stop.signal))(), abandoned]);
    stop.signal.throwIfAborted();
    return result;
  } catch (error) {
    throw stop.signal.aborted ? stop.signal.reason : error;
  } finally {
    signal.removeEventListener("abort", lost);
    for (const cancel of timers) cancel();
  }
}
