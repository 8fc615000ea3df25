import { KhalaError, phoenix } from "@khala/contracts";
import type { Environment, SocketLike } from "../environment.ts";
import { errorCode } from "./close_reason.ts";

/** The result of a push: the server's reply, or an error. */
export type Settle = (error: KhalaError | undefined, reply: unknown) => void;

export interface PhoenixHandlers {
  onOpen(): void;
  /** Any message but a reply, in order. */
  onMessage(message: phoenix.Message): void;
  /** Called once, last. Not after `close`. */
  onClose(code: number, reason: string): void;
}

/** Timeouts of replies and of the handshake. */
const REPLY_MS = 10_000;
const CONNECT_MS = 15_000;
/** Heartbeat interval. Background tabs may stretch it to a minute. */
const BEAT_MS = 30_000;

interface Waiting {
  readonly settle: Settle;
  readonly cancel: () => void;
}

/** One WebSocket with Phoenix Channels V2 in JSON. Not reusable after it closes. */
export class PhoenixSocket {
  readonly #socket: SocketLike;
  readonly #environment: Environment;
  readonly #handlers: PhoenixHandlers;
  readonly #onBeat: () => void;
  readonly #waiting = new Map<string, Waiting>();
  #refs = 0;
  #open = false;
  #ended = false;
  #stopTimer: () => void;

  /** Takes over a socket that is being opened. `onBeat` is called with each heartbeat. */
  constructor(socket: SocketLike, environment: Environment, handlers: PhoenixHandlers, onBeat: () => void) {
    this.#environment = environment;
    this.#handlers = handlers;
    this.#onBeat = onBeat;
    this.#socket = socket;
    this.#stopTimer = environment.timer(CONNECT_MS, () => this.#end(1006, "timeout"));
    socket.onopen = () => {
      if (this.#ended) return;
      this.#open = true;
      this.#beatLater();
      handlers.onOpen();
    };
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code, reason }) => this.#end(code, reason);
    // The close event follows with the reason.
    socket.onerror = () => {};
  }

  get open(): boolean {
    return this.#open && !this.#ended;
  }

  newRef(): string {
    return String(++this.#refs);
  }

  /** Sends a push. `settle` is called once: with the reply, at the timeout, or when the socket closes. */
  push(
    topic: string,
    joinRef: string | null,
    event: string,
    payload: unknown,
    settle: Settle,
    ref = this.newRef(),
  ): void {
    if (!this.open) return settle(disconnected(), undefined);
    const late = this.#environment.timer(REPLY_MS, () => {
      this.#waiting.delete(ref);
      settle(new KhalaError("unavailable", `The server did not answer "${event}" in time.`), undefined);
    });
    this.#waiting.set(ref, { settle, cancel: late });
    this.#socket.send(phoenix.encodeText({ joinRef, ref, topic, event, payload }));
  }

  /** Sends a message without a reply. */
  cast(topic: string, joinRef: string | null, event: string, payload: unknown): void {
    if (this.open)
      this.#socket.send(phoenix.encodeText({ joinRef, ref: this.newRef(), topic, event, payload }));
  }

  /** Sends a heartbeat. Without a reply the socket is closed. */
  probe(): void {
    this.push("phoenix", null, "heartbeat", {}, (error) => {
      if (error) this.#end(1006, "silent");
    });
  }

  /** Closes the socket. */
  close(code = 1000, reason = ""): void {
    if (this.#ended) return;
    this.#finish();
    this.#socket.close(code, reason);
    this.#rejectAll();
  }

  #beatLater(): void {
    this.#stopTimer();
    this.#stopTimer = this.#environment.timer(BEAT_MS, () => {
      this.probe();
      this.#beatLater();
      this.#onBeat();
    });
  }

  #receive(data: unknown): void {
    if (this.#ended) return;
    let message: phoenix.Message;
    try {
      message = phoenix.decodeText(String(data));
    } catch {
      // Not a Phoenix frame, so not Khala.
      return this.#end(1002, "internal");
    }
    if (message.event === "phx_reply") this.#answer(message);
    else this.#handlers.onMessage(message);
  }

  #answer({ ref, payload }: phoenix.Message): void {
    const waiting = this.#waiting.get(ref ?? "");
    if (!waiting) return;
    this.#waiting.delete(ref ?? "");
    waiting.cancel();
    const { status, response } = (payload ?? {}) as { status?: unknown; response?: unknown };
    if (status === "ok") waiting.settle(undefined, response);
    else waiting.settle(errorOf(response), undefined);
  }

  #end(code: number, reason: string): void {
    if (this.#ended) return;
    this.#finish();
    // Without a close a half-open socket would linger for minutes.
    this.#socket.close();
    this.#rejectAll();
    this.#handlers.onClose(code, reason);
  }

  #finish(): void {
    this.#ended = true;
    this.#stopTimer();
    const { onopen, onmessage, onclose } = noHandlers;
    Object.assign(this.#socket, { onopen, onmessage, onclose });
  }

  #rejectAll(): void {
    for (const { settle, cancel } of this.#waiting.values()) {
      cancel();
      settle(disconnected(), undefined);
    }
    this.#waiting.clear();
  }
}

const noHandlers = { onopen: null, onmessage: null, onclose: null };

/** The error of a reply or body: `{"error":{"code","message",…}}`. */
export function errorOf(response: unknown): KhalaError {
  const { error, reason } = (response ?? {}) as { error?: Record<string, unknown>; reason?: unknown };
  const { code, message, retry_after_ms, ...details } = error ?? {};
  const known = errorCode(code) ?? (reason === "unmatched topic" ? "not_found" : "internal");
  const text =
    typeof message === "string" ? message : `The server refused (${String(code ?? reason ?? "no reason")}).`;
  const wait = Number(retry_after_ms);
  return new KhalaError(known, text, { ...details, ...(wait > 0 && { retry_after_ms: wait }) });
}

function disconnected(): KhalaError {
  return new KhalaError("unavailable", "The connection is down. The client reconnects automatically.");
}
