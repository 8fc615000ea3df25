import type { WebSocket } from "ws";

/** A frame in two parts: the first may be shared by many sockets, the second is this socket's own. */
export interface TwoPartFrame {
  readonly shared: Buffer;
  readonly own: Buffer;
  readonly binary: boolean;
}

/** From this size on, a shared part is not copied to be sent as one frame: the message goes out in fragments. */
const COPY_LIMIT = 16 << 10;
/** Small enough that a slow line shows its progress within a large message. */
const FRAGMENT = 64 << 10;

/** What waits for one socket, bounded in bytes. */
export class Outbox {
  readonly #socket: WebSocket;
  readonly #limit: number;
  readonly #now: () => number;
  readonly #onRoom: () => void;
  #fullSince: number | undefined;

  /** `onRoom` is called when a socket that refused a frame can take some again. */
  constructor(socket: WebSocket, limit: number, now: () => number, onRoom: () => void) {
    this.#socket = socket;
    this.#limit = limit;
    this.#now = now;
    this.#onRoom = onRoom;
  }

  /** Since when the socket has been full without taking anything. */
  get fullSince(): number | undefined {
    return this.#fullSince;
  }

  get waitingBytes(): number {
    return this.#socket.bufferedAmount;
  }

  /** Sends a frame, or refuses it because too much is waiting. One frame over the limit is admitted. */
  offer(frame: TwoPartFrame): boolean {
    if (this.#socket.bufferedAmount >= this.#limit) {
      this.#fullSince ??= this.#now();
      return false;
    }
    if (this.#socket.readyState !== this.#socket.OPEN) return true;
    if (frame.shared.length > COPY_LIMIT) {
      for (let at = 0; at < frame.shared.length; at += FRAGMENT) {
        const part = frame.shared.subarray(at, at + FRAGMENT);
        this.#socket.send(part, { binary: frame.binary, fin: false }, this.#sent);
      }
      this.#socket.send(frame.own, { binary: frame.binary, fin: true }, this.#sent);
      return true;
    }
    const whole = Buffer.allocUnsafe(frame.shared.length + frame.own.length);
    frame.shared.copy(whole);
    frame.own.copy(whole, frame.shared.length);
    this.#socket.send(whole, { binary: frame.binary }, this.#sent);
    return true;
  }

  /** Sends an answer. Answers are small and asked for, so they are not refused; who does not read them is not read. */
  send(data: string | Uint8Array): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#socket.send(data, this.#sent);
    if (this.#socket.bufferedAmount < this.#limit) return;
    this.#fullSince ??= this.#now();
    this.#socket.pause();
  }

  // A failed write is followed by the socket's close event, which cleans up.
  readonly #sent = (): void => {
    if (this.#fullSince === undefined) return;
    if (this.#socket.bufferedAmount > this.#limit / 2) {
      // Slow, but it moves: closing it would only make it start the same message again.
      this.#fullSince = this.#now();
      return;
    }
    this.#fullSince = undefined;
    if (this.#socket.isPaused) this.#socket.resume();
    this.#onRoom();
  };
}
