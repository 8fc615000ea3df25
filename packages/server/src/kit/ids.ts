import { randomFillSync } from "node:crypto";
import type { Clock } from "./clock.ts";

/** Generates ids. Injected, so that tests can repeat them. */
export type NewId = () => string;

/** A random number in [0, 1). Injected, so that tests can repeat it. */
export type Random = () => number;

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
/** Random bytes per id, and per start of the counter. */
const RANDOM_BYTES = 8;
const COUNTER_BYTES = 2;
/** The counter within a millisecond has 12 bits and starts in the lower half. */
const MAX_COUNT = 0xfff;

/**
 * UUIDv7 (RFC 9562): sorts by time and, within a millisecond, by a counter, so that index inserts stay sequential.
 * The other 62 bits are random.
 */
export function uuidv7(clock: Clock): NewId {
  // One call to the system for many ids: a call for a few bytes costs as much.
  const pool = new Uint8Array((RANDOM_BYTES + COUNTER_BYTES) * 400);
  let at = pool.length;
  const next = () => HEX[pool[at++]!]!;
  let last = Number.NaN;
  let prefix = "";
  let count = MAX_COUNT;
  return () => {
    if (at + RANDOM_BYTES + COUNTER_BYTES > pool.length) {
      randomFillSync(pool);
      at = 0;
    }
    const now = Math.floor(clock.now());
    if (now !== last) {
      const time = now.toString(16).padStart(12, "0");
      prefix = `${time.slice(0, 8)}-${time.slice(8)}`;
    }
    count =
      now === last && count < MAX_COUNT ? count + 1 : ((pool[at++]! << 8) | pool[at++]!) & (MAX_COUNT >> 1);
    last = now;
    const version = HEX[0x70 | (count >> 8)]! + HEX[count & 0xff]!;
    const variant = HEX[(pool[at++]! & 0x3f) | 0x80]! + next();
    const node = next() + next() + next() + next() + next() + next();
    return `${prefix}-${version}-${variant}-${node}`;
  };
}
