import type { LocksLike } from "../environment.ts";

/** The wish to lead, until it is given up. */
export interface Candidacy {
  /** Lets another tab lead. */
  resign(): void;
}

/**
 * Asks to lead a group. The browser grants it to one tab at a time, in the order in which they asked, and takes it back from a tab that
 * closes or crashes. `failed` is called where locks cannot be had.
 */
export function stand(
  locks: LocksLike,
  name: string,
  elected: () => void,
  failed: (error: unknown) => void,
): Candidacy {
  const candidacy = new AbortController();
  const { signal } = candidacy;
  const hold = () =>
    new Promise<void>((resolve) => {
      if (signal.aborted) return resolve();
      signal.addEventListener("abort", () => resolve(), { once: true });
      elected();
    });
  locks.request(name, { signal }, hold).catch((error: unknown) => {
    if (!signal.aborted) failed(error);
  });
  return { resign: () => candidacy.abort() };
}
