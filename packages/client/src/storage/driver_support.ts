import { KhalaError } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import type { Cursor, StoredDocument } from "./storage.ts";

const FULL = /quota|SQLITE_FULL|database or disk is full/i;

/** Wraps a driver's error: `sequence_conflict` for an outdated change, `limit_exceeded` when the quota is used up, `unavailable` otherwise. */
function storageError(driver: string, cause: unknown): KhalaError {
  if (cause instanceof KhalaError) return cause;
  if (cause instanceof OutdatedChange)
    return new KhalaError("sequence_conflict", cause.message, {}, { cause });
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

/** The topic is not stored at the cursor that a change follows. */
export class OutdatedChange extends Error {
  constructor() {
    super("The stored topic was cleared or changed by another program. Store it again completely.");
  }
}

/** Whether a stored value is this cursor. */
export function isAt(stored: unknown, { epoch, watermark }: Cursor): boolean {
  return isCursor(stored) && stored.epoch === epoch && stored.watermark === watermark;
}

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

/** Resolves with the work, or with undefined when it takes too long. The work continues. */
export function withPatience<T>(
  environment: Environment,
  ms: number,
  work: Promise<T>,
): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const cancel = environment.timer(ms, () => resolve(undefined));
    work.then(resolve, reject).finally(cancel);
  });
}
