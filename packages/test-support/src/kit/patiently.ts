import { vi } from "vitest";

/** Retries an assertion until it holds, within the time a shared machine may need. */
export function patiently<T>(check: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(check, { timeout: 30_000 });
}
