import type { Clock } from "../../kit/clock.ts";

/** An attempt exceeded its agent's timeout. */
export class TimeoutError extends Error {
  override readonly name = "TimeoutError";
}

/** Limits of an attempt. Times are milliseconds. */
export interface Supervision {
  readonly clock: Clock;
  /** No timeout if it is undefined. */
  readonly timeoutMs: number | undefined;
  /** How long the attempt may run after its signal aborted before it is abandoned. */
  readonly graceMs: number;
  /** Receives the function that aborts an asynchronous attempt. */
  onWatch?(tellToStop: (reason: unknown) => void): void;
  /** Called when the attempt did not end within the grace period. */
  onAbandoned(): void;
}

/**
 * Runs a function with a signal that aborts at the timeout or with the caller's signal. A result after the abort is
 * ignored, because many functions return early without an error when they are aborted. A function that returns or throws
 * synchronously is not supervised.
 */
export function supervise<T>(
  work: (signal: AbortSignal) => Promise<T> | T,
  signal: AbortSignal,
  supervision: Supervision,
): Promise<T> | T {
  const stop = new AbortController();
  if (signal.aborted) stop.abort(signal.reason);
  let answer: Promise<T> | T;
  try {
    answer = work(stop.signal);
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  }
  if (isThenable(answer)) return watch(answer, stop, signal, supervision);
  signal.throwIfAborted();
  return answer;
}

/** Whether the value is a promise of any library. */
export function isThenable<T>(answer: PromiseLike<T> | T): answer is PromiseLike<T> {
  return (
    typeof answer === "object" && answer !== null && "then" in answer && typeof answer.then === "function"
  );
}

function watch<T>(
  answer: PromiseLike<T>,
  stop: AbortController,
  signal: AbortSignal,
  { clock, timeoutMs, graceMs, onWatch, onAbandoned }: Supervision,
): Promise<T> {
  return new Promise((resolve, reject) => {
    /** Cancels the current timer: the timeout's, then the grace period's. */
    let cancel: (() => void) | undefined;
    const abandon = () => {
      end();
      onAbandoned();
      reject(stop.signal.reason);
    };
    const tellToStop = (reason: unknown) => {
      cancel?.();
      cancel = clock.after(graceMs, abandon);
      // The first abort reason is kept.
      stop.abort(reason);
    };
    const tellOnce = (reason: unknown) => {
      if (!stop.signal.aborted) tellToStop(reason);
    };
    const lost = () => tellOnce(signal.reason);
    const end = () => {
      cancel?.();
      signal.removeEventListener("abort", lost);
    };
    if (signal.aborted) tellToStop(signal.reason);
    else {
      signal.addEventListener("abort", lost, { once: true });
      const late = () => tellToStop(new TimeoutError(`The attempt took longer than ${timeoutMs} ms.`));
      if (timeoutMs !== undefined) cancel = clock.after(timeoutMs, late);
    }
    onWatch?.(tellOnce);
    answer.then(
      (result) => {
        end();
        if (stop.signal.aborted) reject(stop.signal.reason);
        else resolve(result);
      },
      (error) => {
        end();
        reject(stop.signal.aborted ? stop.signal.reason : error);
      },
    );
  });
}
