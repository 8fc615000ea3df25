import { vi } from "vitest";

/** Checks again until nothing is thrown, for as long as a machine may need that others use as well. */
export function patiently<T>(check: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(check, { timeout: 30_000 });
}
