import type { Duplex } from "node:stream";
import { type ErrorCode, KhalaError } from "@khala/contracts";
import type { WebSocket } from "ws";
import type { Context } from "../kit/context.ts";
import type { Viewer } from "./auth/claims.ts";
import { Outbox } from "./outbox.ts";

export interface ConnectionLimits {
  readonly bufferBytes: number;
  readonly slowMs: number;
  readonly idleMs: number;
  readonly heartbeatMs: number;
}

export interface ConnectionOptions {
  readonly limits: ConnectionLimits;
  /** Checks a new token for the open socket. */
  readonly authenticate: (current: Viewer, token: string) => Promise<Viewer>;
  /** Something that the client asked for was answered with an error. */
  readonly onRefused: (code: ErrorCode) => void;
  readonly onClosed: (connection: Connection, code: number) => void;
}

/** What a kind of socket does with its connection. */
export interface ClientSocket {
  receive(data: Buffer, binary: boolean): void;
  /** There is room in the outbox again. */
  room(): void;
  /** Sends the regular sign of life. */
  heartbeat(): void;
  /** Says why the connection is about to be closed. */
  farewell(error: KhalaError): void;
  /** The connection is over. Called once, after the farewell if there is one. */
  close(): void;
}

const CLOSE_GRACE_MS = 5_000;

/** One client's WebSocket: what waits for it, whose it is, and when it has to go. What is said on it is its socket's matter. */
export class Connection {
  readonly outbox: Outbox;
  readonly #ws: WebSocket;
  readonly #context: Context;
  readonly #options: ConnectionOptions;
  readonly #socket: ClientSocket;
  #viewer: Viewer;
  #heardAt: number;
  #beatAt: number;
  #closing = false;

  /** `accept` makes the socket that is served; `stream` is what the WebSocket writes to. */
  constructor(
    ws: WebSocket,
    stream: Duplex,
    viewer: Viewer,
    context: Context,
    options: ConnectionOptions,
    accept: (connection: Connection) => ClientSocket,
  ) {
    this.#ws = ws;
    this.#viewer = viewer;
    this.#context = context;
    this.#options = options;
    this.#heardAt = this.#beatAt = context.clock.now();
    this.outbox = new Outbox(ws, stream, options.limits.bufferBytes, context.clock.now, () =>
      this.#socket.room(),
    );
    this.#socket = accept(this);
    ws.on("message", (data, binary) => {
      if (this.#closing) return;
      this.#heard();
      this.#socket.receive(data as Buffer, binary);
    });
    ws.on("pong", () => this.#heard());
    ws.on("close", (code) => {
      if (!this.#closing) {
        this.#closing = true;
        this.#socket.close();
      }
      options.onClosed(this, code);
    });
    // The close event follows and cleans up; a client that breaks its frames is no fault of ours.
    ws.on("error", (error) => context.log.debug({ err: error.message }, "a socket failed"));
  }

  /** Who is on the other side; changes when the token is refreshed. */
  get viewer(): Viewer {
    return this.#viewer;
  }

  /** Checks a new token and takes it over. */
  async authenticate(token: string): Promise<Viewer> {
    this.#viewer = await this.#options.authenticate(this.#viewer, token);
    return this.#viewer;
  }

  /** Counts a request that was answered with an error. */
  refused(code: ErrorCode): void {
    this.#options.onRefused(code);
  }

  /** Asks the other side whether it is there, for clients that need not say anything: every WebSocket answers by itself. */
  ping(): void {
    if (this.#ws.readyState === this.#ws.OPEN) this.#ws.ping();
  }

  /** Called about once a second: sends heartbeats, ends what has expired, is idle or too slow. */
  tick(now: number): void {
    const { slowMs, idleMs, heartbeatMs } = this.#options.limits;
    const { fullSince } = this.outbox;
    if (fullSince !== undefined && now - fullSince > slowMs) {
      return this.end(
        new KhalaError(
          "slow_consumer",
          "This socket reads too slowly. Reconnect and resume from the last cursor.",
        ),
      );
    }
    if (now - this.#heardAt > idleMs)
      return this.end(new KhalaError("idle_timeout", "Nothing was heard from this socket for too long."));
    if (now >= this.#viewer.expiresAt) {
      return this.end(
        new KhalaError(
          "token_expired",
          "The token expired. Reconnect with a fresh one, or push `auth` in time.",
        ),
      );
    }
    if (now - this.#beatAt >= heartbeatMs) {
      this.#beatAt = now;
      this.#socket.heartbeat();
    }
  }

  /** Says why, then closes with the code's close code once what waits is flushed. */
  end(error: KhalaError): void {
    if (this.#closing) return;
    this.#closing = true;
    this.#socket.farewell(error);
    this.#socket.close();
    // The client's own close must be heard, also when it was not listened to for a while.
    this.#ws.resume();
    this.#ws.close(error.meaning.close, error.code);
    const cancel = this.#context.clock.after(CLOSE_GRACE_MS, () => this.#ws.terminate());
    this.#ws.once("close", cancel);
  }

  /** Cuts the connection without a word. */
  terminate(): void {
    this.#ws.terminate();
  }

  #heard(): void {
    this.#heardAt = this.#context.clock.now();
  }
}
