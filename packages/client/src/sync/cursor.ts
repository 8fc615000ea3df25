import type { Cursor } from "../storage/storage.ts";

/** Whether a version or watermark, a whole number as text, is greater than another. */
export function isNewer(version: string, than: string): boolean {
  return version.length === than.length ? version > than : version.length > than.length;
}

/** Whether two positions are the same. */
export function sameCursor(a: Cursor | undefined, b: Cursor | undefined): boolean {
  return a?.epoch === b?.epoch && a?.watermark === b?.watermark;
}

/** Whether `position` is at or after `cursor`. Positions of different epochs cannot be compared. */
export function reaches(position: Cursor | undefined, cursor: Cursor): boolean {
  if (position?.epoch !== cursor.epoch) return false;
  return BigInt(position.watermark) >= BigInt(cursor.watermark);
}

/** A cursor from the wire, with the zeros that proto3 leaves out. */
export function cursorOf({
  epoch = "",
  watermark = "0",
}: {
  epoch?: string;
  watermark?: string;
} = {}): Cursor {
  return { epoch, watermark };
}
