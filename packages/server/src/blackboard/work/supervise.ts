import type { Clock } from "../../kit/clock.ts";

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
  /** Given a way to tell work to stop that has to be waited for. */
  onWatch?(tellToStop: (reason: unknown) => void): void;
  /** Hears of work that did not stop in time. */
  onAbandoned(): void;
}

/**
 * Runs work with a signal that aborts when time is up, or the caller's does. What work answers after that is not
 * believed: many end early, without an error, when they are told to stop. Work that answers at once, or throws, is
 * answered at once: there is nothing to watch over.
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

/** Whether it has to be waited for; not every library's promises are the language's own. */
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
    /** Cancels the timer that runs: that of the timeout, then that of the grace. */
    let cancel: (() => void) | undefined;
    const abandon = () => {
      end();
      onAbandoned();
      reject(stop.signal.reason);
    };
    const tellToStop = (reason: unknown) => {
      cancel?.();
      cancel = clock.after(graceMs, abandon);
      // Whoever was told first keeps that reason.
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
