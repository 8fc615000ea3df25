import type { Bounds } from "./journal.ts";

/** A cursor as a client sends it. */
export interface SentCursor {
  readonly epoch: string;
  readonly watermark: bigint;
}

/** The epoch of a viewer: it changes with the database and with access rights. */
export function viewerEpoch(epoch: string, rights: string): string {
  return `${epoch}.${rights}`;
}

/** The watermark to resume from, or "stale" when there would be a gap. */
export function resumeFrom(sent: SentCursor, epoch: string, bounds: Bounds): bigint | "stale" {
  // Watermark 0 without an epoch asks for all that is retained, whatever that is.
  if (sent.epoch === "" && sent.watermark === 0n) return bounds.floor;
  if (sent.epoch !== epoch || sent.watermark < bounds.floor || sent.watermark > bounds.head) return "stale";
  return sent.watermark;
}
