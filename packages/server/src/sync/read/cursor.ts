import type { Bounds } from "./journal.ts";

/** A cursor as a client sends it. */
export interface SentCursor {
  readonly epoch: string;
  readonly watermark: bigint;
}

/** The epoch as a viewer sees it: another database, or other rights, make another epoch. */
export function viewerEpoch(epoch: string, rights: string): string {
  return `${epoch}.${rights}`;
}

/** Where to resume: a watermark, or "stale" when the cursor cannot be continued without a gap. */
export function resumeFrom(sent: SentCursor, epoch: string, bounds: Bounds): bigint | "stale" {
  // Watermark 0 without an epoch asks for all that is retained, whatever that is.
  if (sent.epoch === "" && sent.watermark === 0n) return bounds.floor;
  if (sent.epoch !== epoch || sent.watermark < bounds.floor || sent.watermark > bounds.head) return "stale";
  return sent.watermark;
}
