import { randomBytes } from "node:crypto";
import type { Clock } from "./clock.ts";

/** Makes ids. Handed in, so that a simulation can repeat them. */
export type NewId = () => string;

/** Randomness in [0, 1). Handed in, so that a simulation can repeat it. */
export type Random = () => number;

/** UUIDv7 (RFC 9562): sorts by time, 74 random bits. */
export function uuidv7(clock: Clock): NewId {
  return () => {
    const bytes = randomBytes(16);
    bytes.writeUIntBE(clock.now(), 0, 6);
    bytes[6] = (bytes[6]! & 0x0f) | 0x70;
    bytes[8] = (bytes[8]! & 0x3f) | 0x80;
    const hex = bytes.toString("hex");
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
  };
}
