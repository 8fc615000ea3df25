import { type Clock, sleep } from "./clock.ts";

/** The result of the work, or `fallback` when it takes longer than `ms`. The work itself is not cancelled. */
export async function withTimeout<T>(clock: Clock, ms: number, work: Promise<T>, fallback: T): Promise<T> {
  const done = new AbortController();
  try {
    return await Promise.race([work, sleep(clock, ms, done.signal).then(() => fallback)]);
  } finally {
    done.abort();
  }
}
