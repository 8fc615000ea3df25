/** An encoded WebSocket message, shared by many sockets. */
export interface WireFrame {
  readonly bytes: Buffer;
  /** Set when the message contains bytes that differ per socket. */
  readonly stamped?: Stamped;
}

/** The most copies for sockets that still hold the shared buffer. */
const MAX_COPIES = 16;

/** A message with a few bytes (the stamp) that differ per socket. Sockets share one buffer, one after the other. */
export class Stamped {
  /** The bytes around the stamp. They never change. */
  readonly before: Buffer;
  readonly after: Buffer;
  #free: Buffer | undefined;
  #copies = MAX_COPIES;

  constructor(bytes: Buffer, at: number, length: number) {
    this.before = bytes.subarray(0, at);
    this.after = bytes.subarray(at + length);
    this.#free = bytes;
  }

  /** The message with this stamp, valid until the next call; undefined when too many buffers are in use. */
  lend(stamp: Buffer): Buffer | undefined {
    if (this.#free) stamp.copy(this.#free, this.before.length);
    else if (this.#copies-- > 0) this.#free = Buffer.concat([this.before, stamp, this.after]);
    return this.#free;
  }

  /** Keeps the last lent buffer: the next call uses another one. */
  keep(): void {
    this.#free = undefined;
  }
}

/** Encodes a message, or a text in two parts, as a frame. */
export function wireFrame(message: string | Uint8Array, rest = ""): WireFrame {
  if (typeof message !== "string")
    return { bytes: Buffer.concat([frameHeader(message.length, true), message]) };
  const length = Buffer.byteLength(message) + Buffer.byteLength(rest);
  const start = headerLength(length);
  const bytes = Buffer.allocUnsafe(start + length);
  writeHeader(bytes, length, false);
  bytes.write(rest, start + bytes.write(message, start));
  return { bytes };
}

/** Encodes a frame with `stampLength` bytes to be filled in per socket. */
export function stampedFrame(
  before: Uint8Array,
  stampLength: number,
  after: Uint8Array,
  binary: boolean,
): WireFrame {
  const header = frameHeader(before.length + stampLength + after.length, binary);
  const bytes = Buffer.concat([header, before, Buffer.alloc(stampLength), after]);
  return { bytes, stamped: new Stamped(bytes, header.length + before.length, stampLength) };
}

/** The header of an unmasked, unfragmented frame (RFC 6455, 5.2). */
function frameHeader(length: number, binary: boolean): Buffer {
  const header = Buffer.allocUnsafe(headerLength(length));
  writeHeader(header, length, binary);
  return header;
}

function headerLength(length: number): number {
  return length < 126 ? 2 : length < 65_536 ? 4 : 10;
}

function writeHeader(bytes: Buffer, length: number, binary: boolean): void {
  bytes[0] = binary ? 0x82 : 0x81;
  if (length < 126) {
    bytes[1] = length;
  } else if (length < 65_536) {
    bytes[1] = 126;
    bytes.writeUInt16BE(length, 2);
  } else {
    bytes[1] = 127;
    bytes.writeBigUInt64BE(BigInt(length), 2);
  }
}
