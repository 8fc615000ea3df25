/** The source of time. Injected, so that tests control it. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Runs `fn` once after `ms`; the returned function cancels it. */
  after(ms: number, fn: () => void): () => void;
}

/** The longest timer of the platform, about 25 days. A longer one would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The system clock. Its timers do not keep the process alive. */
export const systemClock = clockWith((timer) => timer.unref());

/** The system clock with timers that keep the process alive, for a program that waits for nothing else. */
export const keepAliveClock = clockWith((timer) => timer);

function clockWith(prepare: (timer: NodeJS.Timeout) => NodeJS.Timeout): Clock {
  return {
    now: () => Date.now(),
    after(ms, fn) {
      let timer: NodeJS.Timeout;
      const start = (restMs: number) => {
        const next = restMs > MAX_TIMER_MS ? () => start(restMs - MAX_TIMER_MS) : fn;
        timer = prepare(setTimeout(next, Math.min(restMs, MAX_TIMER_MS)));
      };
      start(ms);
      return () => clearTimeout(timer);
    },
  };
}

let lastTime = Number.NaN;
let lastText = "";

/** A time in milliseconds as RFC 3339. Many calls ask for the same millisecond, so the last result is cached. */
export function isoTime(ms: number): string {
  if (ms !== lastTime) {
    lastText = new Date(ms).toISOString();
    lastTime = ms;
  }
  return lastText;
}

/** Resolves after `ms`, or at once when the signal aborts. Never rejects: the caller checks the signal. */
export function sleep(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      cancel();
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const cancel = clock.after(ms, done);
    signal?.addEventListener("abort", done, { once: true });
  });
}
