import { createHash } from "node:crypto";
import { partQuery, type TopicPart } from "../part.ts";
import type { Bounds } from "./journal.ts";
import type { Starts } from "./starts.ts";

/** A cursor as a client sends it. */
export interface SentCursor {
  readonly epoch: string;
  readonly watermark: bigint;
}

/** The epoch of a viewer: it changes with the database and with access rights. */
export function viewerEpoch(epoch: string, rights: string): string {
  return `${epoch}.${rights}`;
}

/** The rights that cursors of a topic, or of a part of it, are bound to: a cursor of one is no cursor of the other. */
export function followedRights(rights: string, part: TopicPart | undefined): string {
  if (!part) return rights;
  const text = JSON.stringify([rights, partQuery(part)]);
  return createHash("sha256").update(text).digest("hex").slice(0, rights.length);
}

/** The start that the epoch of a viewer names. */
export function startOf(epoch: string): string {
  return epoch.slice(0, Math.max(0, epoch.lastIndexOf(".")));
}

/** The feed's state that a cursor is compared with. */
export interface Place {
  readonly topic: string;
  readonly rights: string;
  readonly starts: Starts;
  readonly bounds: Bounds;
}

/** The watermark to resume from, or "stale" when there would be a gap. */
export function resumeFrom(sent: SentCursor, { topic, rights, starts, bounds }: Place): bigint | "stale" {
  // Watermark 0 without an epoch asks for all that is retained, whatever that is.
  if (sent.epoch === "" && sent.watermark === 0n) return bounds.floor;
  const start = startOf(sent.epoch);
  const known = sent.epoch === viewerEpoch(start, rights) && starts.covers(start, topic, sent.watermark);
  if (!known || sent.watermark < bounds.floor || sent.watermark > bounds.head) return "stale";
  return sent.watermark;
}
