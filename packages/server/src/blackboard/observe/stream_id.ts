import { sha256 } from "../../kit/hash.ts";

/** An id has at most 200 characters. */
const MAX_PART = 99;

/**
 * The id of the stream that reports an agent or a correlation of an org. Every name has one, and no two names share one:
 * a character that ids do not allow becomes `@` and its UTF-8 bytes in hexadecimal, and a long name its hash.
 */
export function boardStreamId(org: string, name: string): string {
  return `${encoded(org)}:${encoded(name)}`;
}

function encoded(name: string): string {
  const escaped = name.replaceAll(/[^A-Za-z0-9_.-]/gu, (character) =>
    [...Buffer.from(character)].map((byte) => `@${byte.toString(16).padStart(2, "0")}`).join(""),
  );
  // Unlike an escape, the mark of a hash is not followed by hexadecimal digits.
  return escaped.length <= MAX_PART ? escaped : `@@${sha256(name)}`;
}
