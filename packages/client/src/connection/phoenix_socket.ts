import { KhalaError, phoenix } from "@khala/contracts";
import type { Environment, SocketLike } from "../environment.ts";
import { errorCode } from "./close_reason.ts";

/** What becomes of a push: the server's reply, or why there is none. */
export type Settle = (error: KhalaError | undefined, reply: unknown) => void;

export interface PhoenixHandlers {
  onOpen(): void;
  /** Anything but a reply, in the order of its coming. */
  onMessage(message: phoenix.Message): void;
  /** Once, and nothing after it. Not when `close` is called. */
  onClose(code: number, reason: string): void;
}

/** How long the server may take to answer. */
const REPLY_MS = 10_000;
const CONNECT_MS = 15_000;
/** How often it is asked whether it is there; background tabs may make a minute of it. */
const BEAT_MS = 30_000;

interface Waiting {
  readonly settle: Settle;
  readonly cancel: () => void;
}

/** One WebSocket that speaks Phoenix Channels V2 in JSON. Opened once, never again after its end. */
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

  /** `onBeat` is called about every 30 s while the line is alive. */
  constructor(url: string, environment: Environment, handlers: PhoenixHandlers, onBeat: () => void) {
    this.#environment = environment;
    this.#handlers = handlers;
    this.#onBeat = onBeat;
    const socket = environment.openSocket(url);
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
    // The close event follows, and says more.
    socket.onerror = () => {};
  }

  get open(): boolean {
    return this.#open && !this.#ended;
  }

  newRef(): string {
    return String(++this.#refs);
  }

  /** Sends a push. `settle` is called once, at the latest when the reply is overdue or the socket ends. */
  push(
    topic: string,
    joinRef: string | null,
    event: string,
    payload: unknown,
    settle: Settle,
    ref = this.newRef(),
  ): void {
    if (!this.open) return settle(lineDown(), undefined);
    const late = this.#environment.timer(REPLY_MS, () => {
      this.#waiting.delete(ref);
      settle(new KhalaError("unavailable", `The server did not answer "${event}" in time.`), undefined);
    });
    this.#waiting.set(ref, { settle, cancel: late });
    this.#socket.send(phoenix.encodeText({ joinRef, ref, topic, event, payload }));
  }

  /** Sends what needs no answer. */
  cast(topic: string, joinRef: string | null, event: string, payload: unknown): void {
    if (this.open)
      this.#socket.send(phoenix.encodeText({ joinRef, ref: this.newRef(), topic, event, payload }));
  }

  /** Finds out whether anybody is there: a line that stays silent is given up. */
  probe(): void {
    this.push("phoenix", null, "heartbeat", {}, (error) => {
      if (error) this.#end(1006, "silent");
    });
  }

  /** Ends it from this side. */
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
      // Whatever speaks to us there, it is not Khala: the close says so.
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
    // A socket that the other side has not closed would go on for minutes.
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
      settle(lineDown(), undefined);
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

function lineDown(): KhalaError {
  return new KhalaError("unavailable", "The connection is down. It is opened again by itself.");
}
