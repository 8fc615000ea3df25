import { KhalaError } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import type { Cursor, StoredDocument } from "./storage.ts";

const FULL = /quota|SQLITE_FULL|database or disk is full/i;

/** Wraps a driver's error: `limit_exceeded` when the quota is used up, `unavailable` otherwise. */
function storageError(driver: string, cause: unknown): KhalaError {
  if (cause instanceof KhalaError) return cause;
  const { name = "", message = String(cause) } = cause instanceof Error ? cause : {};
  const options = { cause };
  if (FULL.test(`${name} ${message}`))
    return new KhalaError(
      "limit_exceeded",
      `${driver} is full: ${message}. Stored documents are intact; follow fewer topics, or clear the storage.`,
      {},
      options,
    );
  return new KhalaError("unavailable", `${driver} failed: ${message}`, {}, options);
}

/** Serialises a driver's operations. A failure does not stop later ones. */
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

/** Another program wrote to the topic, so a change cannot be added to the stored state. */
export class ConcurrentWrite extends Error {
  constructor() {
    super("another program wrote to the topic meanwhile; it has to be stored as a whole");
  }
}

/** The last known cursor of a stored topic. */
export interface LastCursor {
  readonly cursor: Cursor | undefined;
}

/** Remembers the stored cursor of each topic, to detect writes of other programs. */
export class LastCursors {
  readonly #cursors = new Map<string, LastCursor>();

  set(scope: string, topic: string, cursor: Cursor | undefined): void {
    this.#cursors.set(keyOf(scope, topic), { cursor });
  }

  /** Runs `write` and moves the cursor. After a failure the stored cursor is unknown, unless another program wrote. */
  async move(
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

/** Whether a stored value is a cursor. */
export function isCursor(value: unknown): value is Cursor {
  return isObject(value) && text(value.epoch) && text(value.watermark) && value.watermark !== "";
}

/** Whether a stored value is a document. */
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

/** Whether a stored value is an object. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Parses JSON; undefined for text that is incomplete or foreign. */
export function parseJson(value: unknown): unknown {
  if (!text(value)) return undefined;
  try {
    return JSON.parse(value);
  } catch {
    return undefined;
  }
}

/** The timeout of a storage operation. */
const STORAGE_MS = 15_000;

/** Rejects when the storage does not answer in time. */
export function withStorageTimeout<T>(environment: Environment, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = environment.timer(STORAGE_MS, () =>
      reject(new Error(`The storage did not answer within ${STORAGE_MS / 1_000} s.`)),
    );
    work.then(resolve, reject).finally(cancel);
  });
}
