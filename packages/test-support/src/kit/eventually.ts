import { until } from "./until.ts";

/** Waits for an effect of other processes, within the time a busy machine may need. */
export function eventually<T>(what: string, condition: () => T | Promise<T>) {
  return until(what, condition, { deadlineMs: 60_000 });
}
