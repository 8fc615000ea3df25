const TEXT_OID = 25;
const HEAD_BYTES = 20;

/**
 * An array of texts in the binary format of PostgreSQL. As text, every quote of every body would be escaped here and
 * read character by character there.
 */
export function textArray(values: readonly (string | null)[]): Buffer {
  const sizes = values.map((value) => (value === null ? 0 : Buffer.byteLength(value)));
  const bytes = Buffer.allocUnsafe(sizes.reduce((sum, size) => sum + size + 4, HEAD_BYTES));
  bytes.writeInt32BE(1, 0);
  bytes.writeInt32BE(values.includes(null) ? 1 : 0, 4);
  bytes.writeInt32BE(TEXT_OID, 8);
  bytes.writeInt32BE(values.length, 12);
  bytes.writeInt32BE(1, 16);
  let at = HEAD_BYTES;
  values.forEach((value, i) => {
    bytes.writeInt32BE(value === null ? -1 : sizes[i]!, at);
    at += 4;
    if (value !== null) at += bytes.write(value, at);
  });
  return bytes;
}
