/** A WebSocket message as it goes on the wire, encoded once for many sockets. */
export interface WireFrame {
  readonly bytes: Buffer;
  /** The place where every socket puts a stamp of its own; without it all get the same. */
  readonly stamped?: Stamped;
}

/** How many copies are made when lines keep what they were lent. */
const COPIES = 16;

/** A message in which each socket has a stamp of its own: one array of bytes that they use in turn. */
export class Stamped {
  /** What all have in common. These bytes never change. */
  readonly before: Buffer;
  readonly after: Buffer;
  #free: Buffer | undefined;
  #copies = COPIES;

  constructor(bytes: Buffer, at: number, length: number) {
    this.before = bytes.subarray(0, at);
    this.after = bytes.subarray(at + length);
    this.#free = bytes;
  }

  /** The whole message with this stamp, until the next is lent; undefined when too many were kept. */
  lend(stamp: Buffer): Buffer | undefined {
    if (this.#free) stamp.copy(this.#free, this.before.length);
    else if (this.#copies-- > 0) this.#free = Buffer.concat([this.before, stamp, this.after]);
    return this.#free;
  }

  /** What was lent last is still needed: nobody else gets these bytes. */
  keep(): void {
    this.#free = undefined;
  }
}

/** Makes a frame of a whole message, or of a text and the rest of it. */
export function wireFrame(message: string | Uint8Array, rest = ""): WireFrame {
  if (typeof message !== "string")
    return { bytes: Buffer.concat([frameHead(message.length, true), message]) };
  const length = Buffer.byteLength(message) + Buffer.byteLength(rest);
  const start = headBytes(length);
  const bytes = Buffer.allocUnsafe(start + length);
  writeHead(bytes, length, false);
  bytes.write(rest, start + bytes.write(message, start));
  return { bytes };
}

/** Makes a frame in which `stampLength` bytes are left open. */
export function stampedFrame(
  before: Uint8Array,
  stampLength: number,
  after: Uint8Array,
  binary: boolean,
): WireFrame {
  const head = frameHead(before.length + stampLength + after.length, binary);
  const bytes = Buffer.concat([head, before, Buffer.alloc(stampLength), after]);
  return { bytes, stamped: new Stamped(bytes, head.length + before.length, stampLength) };
}

/** What comes before the payload in an unmasked frame that is a whole message (RFC 6455, 5.2). */
function frameHead(length: number, binary: boolean): Buffer {
  const head = Buffer.allocUnsafe(headBytes(length));
  writeHead(head, length, binary);
  return head;
}

function headBytes(length: number): number {
  return length < 126 ? 2 : length < 65_536 ? 4 : 10;
}

function writeHead(bytes: Buffer, length: number, binary: boolean): void {
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
