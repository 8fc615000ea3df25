import { until } from "./until.ts";

/** Waits for something that other processes do, as long as a machine may take that has much else to do. */
export function eventually<T>(what: string, condition: () => T | Promise<T>) {
  return until(what, condition, { deadlineMs: 60_000 });
}
