/** Describes the unnamed portal, and executes it to its end. */
const DESCRIBE_AND_EXECUTE = Buffer.from("D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0", "latin1");
const BIND = "B".charCodeAt(0);
const NULL = -1;

/**
 * What runs a prepared statement with values: Bind, Describe and Execute as one piece of the right size. Texts go as text,
 * bytes as bytes, and rows come back as text.
 */
export function runMessage(statement: string, values: readonly (string | Buffer | null)[]): Buffer {
  const lengths: number[] = [];
  let length = 4 + 1 + Buffer.byteLength(statement) + 1 + 2 + 2 * values.length + 2 + 4 * values.length + 4;
  for (const value of values) {
    const bytes = value === null ? NULL : typeof value === "string" ? Buffer.byteLength(value) : value.length;
    lengths.push(bytes);
    length += Math.max(0, bytes);
  }
  const message = Buffer.allocUnsafe(1 + length + DESCRIBE_AND_EXECUTE.length);
  let at = message.writeUInt8(BIND, 0);
  at = message.writeInt32BE(length, at);
  // The portal has no name.
  at = message.writeUInt8(0, at);
  at += message.write(statement, at);
  at = message.writeUInt8(0, at);
  at = message.writeInt16BE(values.length, at);
  for (const value of values) at = message.writeInt16BE(Buffer.isBuffer(value) ? 1 : 0, at);
  at = message.writeInt16BE(values.length, at);
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    at = message.writeInt32BE(lengths[i]!, at);
    if (typeof value === "string") at += message.write(value, at);
    else if (value !== null) at += value.copy(message, at);
  }
  at = message.writeInt16BE(1, at);
  at = message.writeInt16BE(0, at);
  DESCRIBE_AND_EXECUTE.copy(message, at);
  return message;
}
