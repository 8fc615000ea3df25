import { KhalaError } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import type { Cursor, StoredDocument } from "./storage.ts";

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

/** A change would be added to what another program, which this one knows nothing of, has stored. */
export class ConcurrentWrite extends Error {
  constructor() {
    super("another program wrote to the topic meanwhile; it has to be stored as a whole");
  }
}

/** What is stored of a topic, as far as this program has seen it. */
export interface LastCursor {
  readonly cursor: Cursor | undefined;
}

/** Remembers what was last seen of each topic, so that changes are only added to what they are changes of. */
export class LastCursors {
  readonly #cursors = new Map<string, LastCursor>();

  saw(scope: string, topic: string, cursor: Cursor | undefined): void {
    this.#cursors.set(keyOf(scope, topic), { cursor });
  }

  /** Moves on with what `write` stores. When it fails it is not known any more what is stored, unless another program wrote. */
  async moves(
    scope: string,
    topic: string,
    to: Cursor,
    write: (last: LastCursor | undefined) => Promise<void>,
  ): Promise<void> {
    const key = keyOf(scope, topic);
    try {
      await write(this.#cursors.get(key));
      this.#cursors.set(key, { cursor: to });
    } catch (error) {
      if (!(error instanceof ConcurrentWrite)) this.#cursors.delete(key);
      throw error;
    }
  }

  clear(): void {
    this.#cursors.clear();
  }
}

const keyOf = (scope: string, topic: string) => JSON.stringify([scope, topic]);

const text = (value: unknown): value is string => typeof value === "string";

/** Whether something that was read back is a cursor. */
export function isCursor(value: unknown): value is Cursor {
  return isObject(value) && text(value.epoch) && text(value.watermark) && value.watermark !== "";
}

/** Whether something that was read back is a document. */
export function isDocument(value: unknown): value is StoredDocument {
  if (!isObject(value)) return false;
  const { key, version, hash, updatedAt, deleted } = value;
  return (
    text(key) &&
    text(version) &&
    text(hash) &&
    (updatedAt === undefined || text(updatedAt)) &&
    (deleted === undefined || deleted === true)
  );
}

/** Whether something that was read back is an object. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The JSON in a text, or undefined when there is none: half-written and foreign content is absent content. */
export function parseJson(value: unknown): unknown {
  if (!text(value)) return undefined;
  try {
    return JSON.parse(value);
  } catch {
    return undefined;
  }
}

/** A storage that takes longer has failed. */
const STORAGE_MS = 15_000;

/** Rejects when the storage does not answer in time, so that nothing waits for it for ever. */
export function withStorageTimeout<T>(environment: Environment, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = environment.timer(STORAGE_MS, () =>
      reject(new Error(`The storage did not answer within ${STORAGE_MS / 1_000} s.`)),
    );
    work.then(resolve, reject).finally(cancel);
  });
}
