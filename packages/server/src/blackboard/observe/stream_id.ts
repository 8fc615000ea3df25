import { sha256 } from "../../kit/hash.ts";

/** An id has at most 200 characters. */
const MAX_ID = 200;

/**
 * The id of the stream that reports an agent or a correlation. Every name has one, and no two names share one:
 * a character that ids do not allow becomes `@` and its UTF-8 bytes in hexadecimal, and a long name its hash.
 */
export function boardStreamId(name: string): string {
  const escaped = name.replaceAll(/[^A-Za-z0-9_.:-]/gu, (character) =>
    [...Buffer.from(character)].map((byte) => `@${byte.toString(16).padStart(2, "0")}`).join(""),
  );
  // Unlike an escape, the mark of a hash is not followed by hexadecimal digits.
  return escaped.length <= MAX_ID ? escaped : `@@${sha256(name)}`;
}
