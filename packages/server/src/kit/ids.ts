import { randomFillSync } from "node:crypto";
import type { Clock } from "./clock.ts";

/** Makes ids. Handed in, so that a simulation can repeat them. */
export type NewId = () => string;

/** Randomness in [0, 1). Handed in, so that a simulation can repeat it. */
export type Random = () => number;

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
/** Random bytes of an id. */
const RANDOM = 10;

/** UUIDv7 (RFC 9562): sorts by time, 74 random bits. */
export function uuidv7(clock: Clock): NewId {
  // Asking the system for a few bytes costs as much as asking for many.
  const pool = new Uint8Array(RANDOM * 400);
  let at = pool.length;
  const next = () => HEX[pool[at++]!]!;
  return () => {
    if (at === pool.length) {
      randomFillSync(pool);
      at = 0;
    }
    const time = Math.floor(clock.now()).toString(16).padStart(12, "0");
    const version = HEX[(pool[at++]! & 0x0f) | 0x70]! + next();
    const variant = HEX[(pool[at++]! & 0x3f) | 0x80]! + next();
    const node = next() + next() + next() + next() + next() + next();
    return `${time.slice(0, 8)}-${time.slice(8)}-${version}-${variant}-${node}`;
  };
}
