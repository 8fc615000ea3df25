import { sha256 } from "../../kit/hash.ts";

const UUID_TIME = /^[0-9a-f]{8}-[0-9a-f]{4}-/;

/**
 * A deterministic UUID (version 8) for a name. Its first 48 bits are those of `like`, so that it sorts by the time of the
 * UUIDv7 that it is derived from.
 */
export function derivedId(like: string, name: string): string {
  const hex = sha256(name);
  const time = UUID_TIME.test(like) ? like.slice(0, 13) : `${hex.slice(32, 40)}-${hex.slice(40, 44)}`;
  const variant = ((Number.parseInt(hex[3]!, 16) & 0x3) | 0x8).toString(16);
  return `${time}-8${hex.slice(0, 3)}-${variant}${hex.slice(4, 7)}-${hex.slice(7, 19)}`;
}
