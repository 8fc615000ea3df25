import type { Cursor } from "../storage/storage.ts";

/** Whether whoever is at `position` has everything up to `cursor`. Positions of different epochs say nothing of each other. */
export function reaches(position: Cursor | undefined, cursor: Cursor): boolean {
  if (position?.epoch !== cursor.epoch) return false;
  return BigInt(position.watermark) >= BigInt(cursor.watermark);
}
