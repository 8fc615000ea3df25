import type { Cursor, StoredDocument } from "./storage.ts";

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
export function parsed(value: unknown): unknown {
  if (!text(value)) return undefined;
  try {
    return JSON.parse(value);
  } catch {
    return undefined;
  }
}
