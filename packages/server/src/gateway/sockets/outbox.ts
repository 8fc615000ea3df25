import type { Writable } from "node:stream";
import type { WebSocket } from "ws";
import type { Stamped, WireFrame } from "../../kit/wire_frame.ts";
import type { Written } from "./traffic.ts";

/** From this size on, a shared frame is not copied for a stamp: copies of large frames would evict the shared ones from the processor's cache. */
const COPY_LIMIT = 2 << 10;
/** Small enough that a slow connection makes visible progress within a large message. */
const PART = 128 << 10;

/** The send queue of one socket, bounded in bytes. */
export class Outbox {
  readonly #socket: WebSocket;
  readonly #stream: Writable;
  readonly #limit: number;
  readonly #now: () => number;
  readonly #onWritable: () => void;
  readonly #written: Written;
  #messages = 0;
  #fullSince: number | undefined;

  /** `stream` is what the socket writes to. `onWritable` is called when one that refused a frame can take some again. */
  constructor(
    socket: WebSocket,
    stream: Writable,
    limit: number,
    now: () => number,
    onWritable: () => void,
    written: Written = { messages: 0, bytes: 0 },
  ) {
    this.#socket = socket;
    this.#stream = stream;
    this.#limit = limit;
    this.#now = now;
    this.#onWritable = onWritable;
    this.#written = written;
  }

  /** Messages that were written. */
  get messages(): number {
    return this.#messages;
  }

  /** Since when the socket has been full without taking anything. */
  get fullSince(): number | undefined {
    return this.#fullSince;
  }

  get waitingBytes(): number {
    return this.#stream.writableLength;
  }

  /**
   * Sends a frame, or refuses it because too much is waiting. One frame over the limit is admitted.
   * It bypasses `ws`, which would make every socket copy the shared bytes.
   */
  offer(frame: WireFrame, stamp?: Buffer): boolean {
    if (this.#stream.writableLength >= this.#limit) {
      this.#fullSince ??= this.#now();
      return false;
    }
    if (this.#socket.readyState !== this.#socket.OPEN) return true;
    this.#count(frame.bytes.length);
    if (frame.stamped && stamp) this.#writeStamped(frame.stamped, stamp);
    else this.#write(frame.bytes);
    return true;
  }

  /**
   * A stream with an empty buffer mostly writes a message at once, and then its bytes can be reused for the next socket. A
   * stream that buffers the message keeps the bytes.
   */
  #writeStamped(stamped: Stamped, stamp: Buffer): void {
    const lent = this.#stream.writableLength === 0 ? stamped.lend(stamp) : undefined;
    if (!lent) return this.#writeOwn(stamped, stamp);
    this.#write(lent);
    if (this.#stream.writableLength > 0) stamped.keep();
  }

  #writeOwn({ before, after }: Stamped, stamp: Buffer): void {
    if (before.length + stamp.length + after.length <= COPY_LIMIT)
      this.#write(Buffer.concat([before, stamp, after]));
    else this.#writeParts(before, stamp, after);
  }

  #write(bytes: Buffer): void {
    if (bytes.length <= PART) {
      this.#stream.write(bytes, this.#sentAfter(bytes.length));
      return;
    }
    for (let at = 0; at < bytes.length; at += PART)
      this.#stream.write(bytes.subarray(at, at + PART), this.#sent);
  }

  #writeParts(before: Buffer, stamp: Buffer, after: Buffer): void {
    const stream = this.#stream;
    const sent = this.#sentAfter(before.length);
    let at = 0;
    for (; before.length - at > PART; at += PART) stream.write(before.subarray(at, at + PART), this.#sent);
    stream.cork();
    stream.write(at === 0 ? before : before.subarray(at));
    stream.write(stamp);
    stream.write(after, sent);
    stream.uncork();
  }

  /**
   * A callback costs a tick, and an idle socket needs none: it can only fill up with what is written while
   * something waits, or by one large frame.
   */
  #sentAfter(bytes: number): (() => void) | undefined {
    return this.#stream.writableLength > 0 || bytes * 2 >= this.#limit ? this.#sent : undefined;
  }

  /** Sends an answer. Answers are small and asked for, so they are not refused; a client that does not read them is paused. */
  send(data: string | Uint8Array): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#count(data.length);
    this.#socket.send(data, this.#sent);
    this.#pauseWhenFull();
  }

  /** Answers a ping, like any other answer: `ws` itself would answer without a bound. */
  pong(data: Buffer): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#socket.pong(data, false, this.#sent);
    this.#pauseWhenFull();
  }

  #pauseWhenFull(): void {
    if (this.#stream.writableLength < this.#limit) return;
    this.#fullSince ??= this.#now();
    this.#socket.pause();
  }

  #count(bytes: number): void {
    this.#messages++;
    this.#written.messages++;
    this.#written.bytes += bytes;
  }

  // A failed write is followed by the socket's close event, which cleans up.
  readonly #sent = (): void => {
    if (this.#fullSince === undefined) return;
    if (this.#stream.writableLength > this.#limit / 2) {
      // Slow, but it progresses: closing it would only make it receive the same message again.
      this.#fullSince = this.#now();
      return;
    }
    this.#fullSince = undefined;
    if (this.#socket.isPaused) this.#socket.resume();
    this.#onWritable();
  };
}
