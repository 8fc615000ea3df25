import type { Cursor } from "../storage/storage.ts";

/** Whether a version or watermark, a whole number as text, is greater than another. */
export function isNewer(version: string, than: string): boolean {
  return version.length === than.length ? version > than : version.length > than.length;
}

/** Whether two positions are the same. */
export function sameCursor(a: Cursor | undefined, b: Cursor | undefined): boolean {
  return a?.epoch === b?.epoch && a?.watermark === b?.watermark;
}
