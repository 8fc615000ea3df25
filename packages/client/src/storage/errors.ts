import { KhalaError } from "@khala/contracts";

const FULL = /quota|SQLITE_FULL|database or disk is full/i;

/** What a driver throws: `limit_exceeded` when there is no room left, `unavailable` for all else. The cause is kept. */
function storageError(driver: string, cause: unknown): KhalaError {
  if (cause instanceof KhalaError) return cause;
  const { name = "", message = String(cause) } = cause instanceof Error ? cause : {};
  const options = { cause };
  if (FULL.test(`${name} ${message}`))
    return new KhalaError(
      "limit_exceeded",
      `${driver} has no room left: ${message}. What was stored before is whole; follow less, or clear the storage.`,
      {},
      options,
    );
  return new KhalaError("unavailable", `${driver} failed: ${message}`, {}, options);
}

/** Runs one thing after the other, so that a driver's steps never mix. A failure does not stop what comes after it. */
export function oneAtATime(driver: string): <T>(work: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const next = last.then(work).catch((error: unknown) => {
      throw storageError(driver, error);
    });
    last = next.catch(() => {});
    return next;
  };
}
