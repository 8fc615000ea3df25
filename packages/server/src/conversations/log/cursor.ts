import { KhalaError } from "@khala/contracts";
import type { Position } from "./log.ts";

/** A position with the epoch of its stream. */
export interface Cursor extends Position {
  readonly epoch: string;
}

/** A cursor as clients store it: opaque, not sortable. */
export function formatCursor({ epoch, seq, time }: Cursor): string {
  return `${epoch}.${time}-${seq}`;
}

/** Reads a cursor that a client sent. */
export function parseCursor(text: string, field: string): Cursor {
  const match = /^([A-Za-z0-9-]{1,64})\.(\d{1,15})-(\d{1,19})$/.exec(text);
  if (!match) {
    const message = `${field} is not a cursor. Send one exactly as received, or none to start from now.`;
    throw new KhalaError("invalid_request", message, { field });
  }
  return { epoch: match[1]!, time: Number(match[2]), seq: BigInt(match[3]!) };
}
