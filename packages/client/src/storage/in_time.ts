import type { Environment } from "../environment.ts";

/** A storage that takes longer has failed. */
const STORAGE_MS = 15_000;

/** Rejects when the storage does not answer in time, so that nothing waits for it for ever. */
export function inTime<T>(environment: Environment, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = environment.timer(STORAGE_MS, () =>
      reject(new Error(`The storage did not answer within ${STORAGE_MS / 1_000} s.`)),
    );
    work.then(resolve, reject).finally(cancel);
  });
}
