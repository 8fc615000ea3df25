import { randomFillSync } from "node:crypto";
import type { Clock } from "./clock.ts";

/** Makes ids. Handed in, so that a simulation can repeat them. */
export type NewId = () => string;

/** Randomness in [0, 1). Handed in, so that a simulation can repeat it. */
export type Random = () => number;

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
/** Random bytes of an id, and of what it counts from. */
const RANDOM = 8;
const FIRST = 2;
/** What is counted within a millisecond has 12 bits, and begins in the lower half. */
const MOST = 0xfff;

/**
 * UUIDv7 (RFC 9562): sorts by time, and those of one millisecond in the order in which they are made, so that an index
 * takes them one after the other. 62 random bits besides.
 */
export function uuidv7(clock: Clock): NewId {
  // Asking the system for a few bytes costs as much as asking for many.
  const pool = new Uint8Array((RANDOM + FIRST) * 400);
  let at = pool.length;
  const next = () => HEX[pool[at++]!]!;
  let last = Number.NaN;
  let prefix = "";
  let count = MOST;
  return () => {
    if (at + RANDOM + FIRST > pool.length) {
      randomFillSync(pool);
      at = 0;
    }
    const now = Math.floor(clock.now());
    if (now !== last) {
      const time = now.toString(16).padStart(12, "0");
      prefix = `${time.slice(0, 8)}-${time.slice(8)}`;
    }
    count = now === last && count < MOST ? count + 1 : ((pool[at++]! << 8) | pool[at++]!) & (MOST >> 1);
    last = now;
    const version = HEX[0x70 | (count >> 8)]! + HEX[count & 0xff]!;
    const variant = HEX[(pool[at++]! & 0x3f) | 0x80]! + next();
    const node = next() + next() + next() + next() + next() + next();
    return `${prefix}-${version}-${variant}-${node}`;
  };
}
