import type { Duplex } from "node:stream";
import { type ErrorCode, KhalaError } from "@khala/contracts";
import type { SocketChannelJson, SocketJson } from "@khala/contracts/ops/v1";
import type { WebSocket } from "ws";
import type { Action } from "../../access/actions.ts";
import type { Viewer } from "../../access/viewer.ts";
import type { Context } from "../../kit/context.ts";
import { Outbox } from "./outbox.ts";
import type { Written } from "./traffic.ts";

export interface ConnectionLimits {
  readonly bufferBytes: number;
  readonly slowMs: number;
  readonly idleMs: number;
  readonly heartbeatMs: number;
}

export interface ConnectionOptions {
  readonly limits: ConnectionLimits;
  /** The protocol: "phoenix", "conversation" or "ai". */
  readonly kind: string;
  /** The address of the client. */
  readonly remote: string;
  /** Totals over all sockets. */
  readonly written: Written;
  /** Checks a new token for the open socket. */
  readonly authenticate: (current: Viewer, token: string) => Promise<Viewer>;
  /** Something that the client asked for was answered with an error. */
  readonly onRefused: (code: ErrorCode) => void;
  /** The reason is an error code when the server closed, else the client's own reason. */
  readonly onClosed: (connection: Connection, code: number, reason: string) => void;
}

/** The protocol that runs on a connection. */
export interface ClientSocket {
  receive(data: Buffer, binary: boolean): void;
  /** The token was refreshed: what the new one does not allow ends now. */
  viewerChanged(): void;
  /** The outbox accepts frames again. */
  onWritable(): void;
  /** Sends the regular sign of life. */
  heartbeat(): void;
  /** Says why the connection is about to be closed. */
  sendError(error: KhalaError): void;
  /** The connection has ended. Called once, after `sendError` if there is an error. */
  close(): void;
  /** The channels on it, for operators. */
  channels(): SocketChannelJson[];
}

/** How long a client may take to answer a close. */
export const CLOSE_GRACE_MS = 5_000;

/** The pings, and unsolicited pongs, that a client may send within a second. */
const MAX_CONTROL_FRAMES = 20;

/** One client's WebSocket: its outbox, its caller, its timeouts. The protocol on it is a ClientSocket. */
export class Connection {
  readonly outbox: Outbox;
  readonly connectedAt: number;
  readonly #id: string;
  readonly #ws: WebSocket;
  readonly #context: Context;
  readonly #options: ConnectionOptions;
  readonly #socket: ClientSocket;
  #viewer: Viewer;
  #aliveAt: number;
  #beatAt: number;
  #awaitsPong = false;
  #control = { since: 0, frames: 0 };
  #closing = false;
  #reason = "";

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
    this.#id = context.newId();
    this.#aliveAt = this.#beatAt = this.connectedAt = context.clock.now();
    const { limits, written } = options;
    const onWritable = () => this.#socket.onWritable();
    this.outbox = new Outbox(ws, stream, limits.bufferBytes, context.clock.now, onWritable, written);
    this.#socket = accept(this);
    ws.on("message", (data, binary) => {
      if (this.#closing) return;
      this.#alive();
      this.#socket.receive(data as Buffer, binary);
    });
    ws.on("ping", (data) => {
      if (this.#admitsControlFrame()) this.outbox.pong(data);
    });
    ws.on("pong", () => {
      if (!this.#awaitsPong) return void this.#admitsControlFrame();
      this.#awaitsPong = false;
      this.#alive();
    });
    ws.on("close", (code, reason) => {
      if (!this.#closing) {
        this.#closing = true;
        this.#socket.close();
      }
      options.onClosed(this, code, this.#reason || reason.toString());
    });
    // The close event follows and cleans up; a client that breaks its frames is no fault of ours.
    ws.on("error", (error) => context.log.debug({ err: error.message }, "a socket failed"));
  }

  /** The authenticated caller; changes when the token is refreshed. */
  get viewer(): Viewer {
    return this.#viewer;
  }

  /** The address of the client. */
  get remote(): string {
    return this.#options.remote;
  }

  /** Verifies a new token and uses it from now on. */
  async authenticate(token: string): Promise<Viewer> {
    this.#viewer = await this.#options.authenticate(this.#viewer, token);
    this.#socket.viewerChanged();
    return this.#viewer;
  }

  /** Counts a request that was answered with an error. */
  refused(code: ErrorCode): void {
    this.#options.onRefused(code);
  }

  /** Pings the client, for protocols without a heartbeat of their own: every WebSocket answers with a pong. */
  ping(): void {
    if (this.#ws.readyState !== this.#ws.OPEN) return;
    this.#awaitsPong = true;
    this.#ws.ping();
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
    if (now - this.#aliveAt > idleMs)
      return this.end(
        new KhalaError("idle_timeout", "The socket was silent for too long. Reconnect, and send heartbeats."),
      );
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
    this.#reason = error.code;
    this.#socket.sendError(error);
    this.#socket.close();
    // A paused socket must be read again, or the client's close frame is not received.
    this.#ws.resume();
    this.#ws.close(error.meaning.close, error.code);
    const cancel = this.#context.clock.after(CLOSE_GRACE_MS, () => this.#ws.terminate());
    this.#ws.once("close", cancel);
  }

  /** The socket, as operators see it. */
  describe(): SocketJson {
    const { subject, org } = this.#viewer;
    return {
      id: this.#id,
      subject,
      org,
      kind: this.#options.kind,
      connected_at: new Date(this.connectedAt).toISOString(),
      remote: this.#options.remote,
      channels: this.#socket.channels(),
      queued_bytes: this.outbox.waitingBytes,
      sent: this.outbox.messages,
      state: this.outbox.fullSince === undefined ? "ok" : "slow",
    };
  }

  /** Closes the connection without a close frame. */
  terminate(): void {
    this.#ws.terminate();
  }

  /** Whether a control frame of the client is within the limit; ends the connection otherwise. */
  #admitsControlFrame(): boolean {
    if (this.#closing) return false;
    const now = this.#context.clock.now();
    if (now - this.#control.since >= 1_000) this.#control = { since: now, frames: 0 };
    if (++this.#control.frames <= MAX_CONTROL_FRAMES) return true;
    const message = `A client may send at most ${MAX_CONTROL_FRAMES} pings per second.`;
    this.end(new KhalaError("limit_exceeded", message));
    return false;
  }

  /** A message, or the answer to a ping of ours. Other frames do not show that the program behind the socket is alive. */
  #alive(): void {
    this.#aliveAt = this.#context.clock.now();
  }
}

/** A path at which sockets are opened, and the protocol there. */
export interface SocketEndpoint {
  readonly path: string;
  /** Its name for operators. */
  readonly kind: string;
  /** The scopes every token of the socket must have; a socket with channels leaves that to them. */
  readonly action?: Action;
  /**
   * Checks the parameters before the token: throws KhalaError to refuse. The returned function serves the socket; it may
   * send at once, but must not throw, nor end the connection before it returns.
   */
  readonly open: (url: URL) => (connection: Connection) => ClientSocket;
}

/** The error that a client receives. An unexpected one is logged, and its details stay on the server. */
export function clientError(error: unknown, { log }: Pick<Context, "log">): KhalaError {
  if (error instanceof KhalaError) return error;
  log.error({ err: error }, "a socket's request failed");
  return new KhalaError("internal", "Internal error: the server's log has the details. Try again.");
}
