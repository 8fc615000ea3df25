const INT_OID = 23;
const TEXT_OID = 25;
const UUID_OID = 2_950;
const HEAD_BYTES = 20;
const UUID_BYTES = 16;

/**
 * An array of texts in the binary format of PostgreSQL. As text, every quote of every body would be escaped here and
 * read character by character there.
 */
export function textArray(values: readonly (string | null)[]): Buffer {
  const hasNulls = values.includes(null);
  // Text without accents or the like has as many bytes as characters, which is known at once.
  const all = values.join("");
  const isAscii = Buffer.byteLength(all) === all.length;
  if (isAscii && !hasNulls) return asciiArray(values as readonly string[], all.length);
  const sizes = values.map((value) => (value === null ? 0 : Buffer.byteLength(value)));
  const bytes = Buffer.allocUnsafe(sizes.reduce((sum, size) => sum + size + 4, HEAD_BYTES));
  writeHead(bytes, TEXT_OID, values.length, hasNulls);
  let at = HEAD_BYTES;
  values.forEach((value, i) => {
    bytes.writeInt32BE(value === null ? -1 : sizes[i]!, at);
    at += 4;
    if (value !== null) at += bytes.write(value, at);
  });
  return bytes;
}

function asciiArray(values: readonly string[], length: number): Buffer {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + 4 * values.length + length);
  writeHead(bytes, TEXT_OID, values.length, false);
  let at = HEAD_BYTES;
  for (const value of values) {
    at = bytes.writeInt32BE(value.length, at);
    at += bytes.write(value, at, "latin1");
  }
  return bytes;
}

/** The same of identifiers, which PostgreSQL is slow to read as text. If one is none, they are text: it says so then. */
export function uuidArray(values: readonly string[]): Buffer | readonly string[] {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + values.length * (4 + UUID_BYTES));
  writeHead(bytes, UUID_OID, values.length, false);
  let at = HEAD_BYTES;
  for (const value of values) {
    if (!hasHyphens(value)) return values;
    at = bytes.writeInt32BE(UUID_BYTES, at);
    let all = 0;
    for (let byte = 0; byte < UUID_BYTES; byte++) {
      const place = UUID_PLACES[byte]!;
      const high = DIGITS[value.charCodeAt(place)]!;
      const low = DIGITS[value.charCodeAt(place + 1)]!;
      all |= high | low;
      bytes[at++] = (high << 4) | low;
    }
    if (all > 15) return values;
  }
  return values.length > 0 ? bytes : values;
}

/** The same of numbers that fit into four bytes. */
export function intArray(values: readonly number[]): Buffer {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + 8 * values.length);
  writeHead(bytes, INT_OID, values.length, false);
  let at = HEAD_BYTES;
  for (const value of values) at = bytes.writeInt32BE(value, bytes.writeInt32BE(4, at));
  return bytes;
}

/** Where in the text of an identifier each of its bytes is. */
const UUID_PLACES = Uint8Array.of(0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34);
/** What each character is as a hexadecimal digit; more than 15 if it is none. */
const DIGITS = new Uint8Array(1 << 16).fill(16);
for (let digit = 0; digit < 16; digit++)
  for (const text of [digit.toString(16), digit.toString(16).toUpperCase()])
    DIGITS[text.charCodeAt(0)] = digit;
const HYPHEN = 45;

function hasHyphens(value: string): boolean {
  return (
    value.length === 36 &&
    value.charCodeAt(8) === HYPHEN &&
    value.charCodeAt(13) === HYPHEN &&
    value.charCodeAt(18) === HYPHEN &&
    value.charCodeAt(23) === HYPHEN
  );
}

function writeHead(bytes: Buffer, oid: number, length: number, hasNulls: boolean): void {
  bytes.writeInt32BE(1, 0);
  bytes.writeInt32BE(hasNulls ? 1 : 0, 4);
  bytes.writeInt32BE(oid, 8);
  bytes.writeInt32BE(length, 12);
  bytes.writeInt32BE(1, 16);
}

/** Ids or numbers as the text of an array. */
export function arrayText(values: readonly (string | number | bigint)[]): string {
  return `{${values.join()}}`;
}

/** Any texts as the text of an array. */
export function quotedArrayText(values: readonly (string | null)[]): string {
  return arrayText(values.map((value) => (value === null ? "NULL" : `"${value.replace(/["\\]/g, "\\$&")}"`)));
}

/** Null in place of a column that says the same of all: less to send, and to read. */
export function unless<T>(usual: T, values: readonly T[]): readonly T[] | null {
  return values.every((value) => value === usual) ? null : values;
}

/** What each of them has; one for all, where it is alike. */
export function once<T, V>(items: readonly T[], value: (item: T) => V): readonly V[] {
  const [first] = items;
  if (first === undefined) return [];
  const alike = value(first);
  return items.every((item) => value(item) === alike) ? [alike] : items.map(value);
}
