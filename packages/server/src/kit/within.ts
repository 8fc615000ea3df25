import { type Clock, sleep } from "./clock.ts";

/** What the work answers, or something else when that takes too long. */
export async function within<T>(clock: Clock, ms: number, work: Promise<T>, otherwise: T): Promise<T> {
  const done = new AbortController();
  try {
    return await Promise.race([work, sleep(clock, ms, done.signal).then(() => otherwise)]);
  } finally {
    done.abort();
  }
}
