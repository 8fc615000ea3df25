import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";

/** What a raw socket tells its owner. */
export interface RawHandlers {
  open(): void;
  /** A text or binary message; nobody here sends one in fragments. */
  frame(data: Buffer): void;
  /** A message has begun to come, and is not complete yet. */
  begun?(): void;
  closed(reason: string): void;
}

const CLOSE = 8;
const PING = 9;

/**
 * A WebSocket client that costs as little as possible: a load generator with a full client's work per frame would
 * measure itself. It trusts its server, masks with zeros, and hands out frames without copying where it can.
 */
export class RawSocket {
  readonly #socket: Socket;
  readonly #handlers: RawHandlers;
  #open = false;
  #rest: Buffer | undefined;
  /** A frame that spans several reads: what has come of it, and how much is missing. */
  #parts: Buffer[] = [];
  #missing = 0;
  #header = 0;

  constructor(port: number, path: string, handlers: RawHandlers) {
    this.#handlers = handlers;
    this.#socket = connect({ port, host: "127.0.0.1", noDelay: true });
    this.#socket.on("connect", () => {
      const key = randomBytes(16).toString("base64");
      this.#socket.write(
        `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
          `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n\r\n`,
      );
    });
    this.#socket.on("data", (chunk) => this.#receive(chunk));
    this.#socket.on("error", (error) => handlers.closed(error.message));
    this.#socket.on("close", () => handlers.closed("the connection ended"));
  }

  send(text: string): void {
    const body = Buffer.from(text);
    const long = body.length > 125;
    const frame = Buffer.alloc(body.length + (long ? 8 : 6));
    frame[0] = 0x81;
    frame[1] = 0x80 | (long ? 126 : body.length);
    if (long) frame.writeUInt16BE(body.length, 2);
    body.copy(frame, long ? 8 : 6);
    this.#socket.write(frame);
  }

  /** Cuts the connection; `closed` is not called for it. */
  close(): void {
    this.#socket.removeAllListeners("close");
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    let data = chunk;
    if (this.#missing > 0) {
      const taken = Math.min(this.#missing, data.length);
      this.#parts.push(data.subarray(0, taken));
      this.#missing -= taken;
      if (this.#missing > 0) return;
      const whole = Buffer.concat(this.#parts);
      this.#parts = [];
      this.#emit(this.#header, whole);
      data = data.subarray(taken);
    } else if (this.#rest) {
      data = Buffer.concat([this.#rest, chunk]);
      this.#rest = undefined;
    }
    if (!this.#open) {
      const end = data.indexOf("\r\n\r\n");
      if (end < 0) {
        this.#rest = data;
        return;
      }
      const status = data.toString("latin1", 9, 12);
      if (status !== "101") return this.#handlers.closed(`refused: ${data.toString("utf8", 0, 1_000)}`);
      this.#open = true;
      this.#handlers.open();
      data = data.subarray(end + 4);
    }
    this.#frames(data);
  }

  #frames(data: Buffer): void {
    let at = 0;
    while (data.length - at >= 2) {
      let length = data[at + 1]! & 0x7f;
      let start = at + 2;
      if (length === 126) {
        start += 2;
        if (data.length < start) break;
        length = data.readUInt16BE(at + 2);
      } else if (length === 127) {
        start += 8;
        if (data.length < start) break;
        length = Number(data.readBigUInt64BE(at + 2));
      }
      const header = data[at]!;
      if (data.length < start + length) {
        this.#header = header;
        this.#parts = [data.subarray(start)];
        this.#missing = start + length - data.length;
        this.#handlers.begun?.();
        return;
      }
      this.#emit(header, data.subarray(start, start + length));
      at = start + length;
    }
    if (at < data.length) this.#rest = data.subarray(at);
  }

  #emit(header: number, data: Buffer): void {
    const opcode = header & 0x0f;
    if (opcode === PING) this.#socket.write(Buffer.from([0x8a, 0x80, 0, 0, 0, 0]));
    else if (opcode === CLOSE) this.#handlers.closed(`closed by the server: ${data.toString("utf8", 2)}`);
    else this.#handlers.frame(data);
  }
}
