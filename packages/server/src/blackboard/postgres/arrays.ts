const TEXT_OID = 25;
const UUID_OID = 2_950;
const HEAD_BYTES = 20;
const UUID_BYTES = 16;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/**
 * An array of texts in the binary format of PostgreSQL. As text, every quote of every body would be escaped here and
 * read character by character there.
 */
export function textArray(values: readonly (string | null)[]): Buffer {
  const sizes = values.map((value) => (value === null ? 0 : Buffer.byteLength(value)));
  const bytes = Buffer.allocUnsafe(sizes.reduce((sum, size) => sum + size + 4, HEAD_BYTES));
  writeHead(bytes, TEXT_OID, values.length, values.includes(null));
  let at = HEAD_BYTES;
  values.forEach((value, i) => {
    bytes.writeInt32BE(value === null ? -1 : sizes[i]!, at);
    at += 4;
    if (value !== null) at += bytes.write(value, at);
  });
  return bytes;
}

/** The same of identifiers, which PostgreSQL is slow to read as text. If one is none, they are text: it says so then. */
export function uuidArray(values: readonly string[]): Buffer | readonly string[] {
  if (!values.every((value) => UUID.test(value))) return values;
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + values.length * (UUID_BYTES + 4));
  writeHead(bytes, UUID_OID, values.length, false);
  let at = HEAD_BYTES;
  for (const value of values) {
    at = bytes.writeInt32BE(UUID_BYTES, at);
    // Two digits are a byte, but for the four hyphens.
    for (let i = 0; i < value.length; i += value.charCodeAt(i) === HYPHEN ? 1 : 2)
      if (value.charCodeAt(i) !== HYPHEN) bytes[at++] = (digit(value, i) << 4) | digit(value, i + 1);
  }
  return bytes;
}

const HYPHEN = 45;

function digit(text: string, at: number): number {
  const code = text.charCodeAt(at);
  // Letters of either case have their value in the lower four bits, counted from 1.
  return code < 58 ? code - 48 : (code & 15) + 9;
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

/** One for all, where they are alike. */
export function once<T>(values: readonly T[]): readonly T[] {
  return values.every((value) => value === values[0]) ? values.slice(0, 1) : values;
}
