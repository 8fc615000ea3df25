import { KhalaError, phoenix } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import { type Backoff, backoffMs, RECONNECT } from "./backoff.ts";
import { Channels, errorOfFrame } from "./channels.ts";
import { closeError, verdictOf } from "./close_reason.ts";
import { type Effect, type Event, type Machine, next, START, steady } from "./machine.ts";
import { PhoenixSocket } from "./phoenix_socket.ts";
import {
  type Channel,
  type ChannelHandlers,
  type Connection,
  type ConnectionState,
  type ConnectionStatus,
  sameStatus,
} from "./port.ts";
import { createTokenRenewal } from "./token_renewal.ts";
import type { Token, Tokens } from "./tokens.ts";

/** The progress of the followed topics: the connection is live when they are. */
export type Progress = "live" | "replaying" | "stale";

/** The connection that holds the socket. */
export interface OwnConnection extends Connection {
  /** Reports the progress of the topics, and the number of changes left, if known. */
  progress(progress: Progress, behind?: number): void;
}

export interface ConnectionOptions {
  readonly url: string;
  readonly environment: Environment;
  readonly tokens: Tokens;
  /** Asks over HTTP why a handshake failed, which browsers hide. Undefined: the token is valid. */
  readonly diagnose: (token: string) => Promise<KhalaError | undefined>;
  readonly log: Log;
}

/** The backoff of a hidden page. */
const HIDDEN: Backoff = { baseMs: 5_000, capMs: 60_000 };
/** The backoff without a network. */
const OFFLINE: Backoff = { baseMs: 30_000, capMs: 30_000 };
/** Live for this long, the connection counts as stable. */
const STEADY_MS = 10_000;

/** The socket stays open this long after the last channel is left, because screens come and go. */
export const UNUSED_MS = 5_000;

/** Creates the connection. The first channel or `connect` opens the socket. */
export function openConnection(options: ConnectionOptions): OwnConnection {
  return new SocketConnection(options);
}

class SocketConnection implements OwnConnection {
  readonly #options: ConnectionOptions;
  readonly #environment: Environment;
  readonly #channels: Channels;
  readonly #listeners = new Set<() => void>();
  readonly #stops: (() => void)[] = [];
  #machine: Machine = START;
  #status: ConnectionStatus;
  #socket: PhoenixSocket | undefined;
  #progress: Progress = "live";
  #behind: number | undefined;
  #error: KhalaError | undefined;
  #retryAt: number | undefined;
  /** The server's last error, which may carry a retry delay. */
  #lastError: KhalaError | undefined;
  /** Cancels the timer of the current state. */
  #cancelTimer: () => void = () => {};
  #cancelUnused: () => void = () => {};
  /** Aborts the current attempt. */
  #attempt = new AbortController();

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#environment = options.environment;
    this.#channels = new Channels(options.environment);
    this.#status = { state: "idle", since: this.#environment.now(), attempt: 0, role: "own" };
    const { online, visible } = this.#environment;
    if (online) this.#stops.push(online.subscribe(() => this.#dispatch(online.get() ? "online" : "offline")));
    if (visible) this.#stops.push(visible.subscribe(() => visible.get() && this.#dispatch("visible")));
  }

  status(): ConnectionStatus {
    return this.#status;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  channel(topic: string, handlers: ChannelHandlers): Channel {
    const channel = this.#channels.add(topic, handlers);
    this.#cancelUnused();
    if (this.#machine.state === "idle") this.connect();
    return {
      push: (event, payload, onReply) => channel.push(event, payload, onReply),
      leave: () => {
        channel.leave();
        this.#cancelUnused();
        if (this.#channels.size === 0)
          this.#cancelUnused = this.#environment.timer(UNUSED_MS, () => this.#dispatch("unused"));
      },
    };
  }

  connect(): void {
    this.#dispatch("connect");
  }

  pause(): void {
    this.#dispatch("pause");
  }

  close(): void {
    this.#cancelUnused();
    this.#dispatch("close");
    for (const stop of this.#stops.splice(0)) stop();
  }

  progress(progress: Progress, behind?: number): void {
    this.#progress = progress;
    this.#behind = behind;
    this.#dispatch(EVENT_OF[progress]);
  }

  #dispatch(event: Event, error?: KhalaError): void {
    const before = this.#machine.state;
    const { machine, effects } = next(this.#machine, event);
    this.#machine = machine;
    const { state } = machine;
    if (error) this.#error = error;
    if (state === "live" || state === "paused" || state === "closed" || state === "idle")
      this.#error = undefined;
    if (state === "offline" && before !== "offline") this.#error = noNetwork();
    if (state !== before || effects.includes("wait")) {
      this.#cancelTimer();
      this.#retryAt = undefined;
    }
    for (const effect of effects) this.#run(effect);
    if (state === "live" && before !== "live" && this.#machine.state === "live")
      this.#cancelTimer = this.#environment.timer(STEADY_MS, () => {
        this.#machine = steady(this.#machine);
      });
    this.#publish();
  }

  #run(effect: Effect): void {
    switch (effect) {
      case "open":
        return this.#open();
      case "drop":
        return this.#drop();
      case "wait":
        return this.#wait();
      case "renew":
        return this.#options.tokens.discard();
      case "probe":
        return this.#socket?.probe();
    }
  }

  #open(): void {
    // A listener may have changed the state in the meantime; also in #wait.
    if (this.#machine.state !== "connecting") return;
    this.#attempt.abort();
    const attempt = new AbortController();
    this.#attempt = attempt;
    this.#options.tokens
      .get()
      .then((token) => {
        if (!attempt.signal.aborted) this.#openSocket(token, attempt.signal);
      })
      .catch((cause: unknown) => {
        // No token; or the platform refuses to open a socket at all.
        const error =
          cause instanceof KhalaError ? cause : new KhalaError("unavailable", NO_SOCKET, {}, { cause });
        if (!attempt.signal.aborted) this.#ended(error);
      });
  }

  #openSocket(token: Token, attempt: AbortSignal): void {
    const { url, tokens } = this.#options;
    const address = `${url.replace(/^http/, "ws").replace(/\/+$/, "")}/socket/websocket?vsn=2.0.0`;
    let taken = false;
    const renewal = createTokenRenewal(token, {
      tokens,
      environment: this.#environment,
      log: this.#options.log,
      authenticate: (text, settle) => this.#channels.authenticate(text, settle),
      reconnect: (error) => this.#dispatch("lost", error),
    });
    attempt.addEventListener("abort", renewal.stop, { once: true });
    const socket = new PhoenixSocket(
      // Not in the URL, which browsers print when a socket fails, and proxies log.
      this.#environment.openSocket(address, phoenix.tokenProtocols(token.text)),
      this.#environment,
      {
        onOpen: () => {
          taken = true;
          this.#dispatch("opened");
          // A listener may have closed it.
          if (attempt.aborted) return;
          this.#channels.attach(socket);
          // Last: a token replaced in the meantime is sent on the sync channel.
          renewal.start();
          this.#dispatch(EVENT_OF[this.#progress]);
        },
        onMessage: (message) => this.#receive(message),
        onClose: (code, reason) => {
          renewal.stop();
          if (taken) return this.#ended(moreSpecific(this.#lastError, closeError(code, reason)));
          this.#explain(token).then((error) => {
            if (!attempt.aborted) this.#ended(error);
          });
        },
      },
      () => renewal.check(),
    );
    this.#socket = socket;
  }

  #receive(message: phoenix.Message): void {
    this.#lastError = errorOfFrame(message.payload);
    this.#channels.receive(message);
  }

  #ended(error: KhalaError): void {
    const verdict = verdictOf(error);
    // The platform only reports changes, so an offline start has no event.
    const offline = verdict === "lost" && this.#environment.online?.get() === false;
    this.#dispatch(offline ? "offline" : verdict, error);
  }

  async #explain(token: Token): Promise<KhalaError> {
    const { tokens, diagnose } = this.#options;
    if (tokens.expired) return new KhalaError("token_expired", "The token has expired. Get a new one.");
    try {
      return (await diagnose(token.text)) ?? new KhalaError("unavailable", REFUSED);
    } catch (error) {
      return error instanceof KhalaError
        ? error
        : new KhalaError("unavailable", REFUSED, {}, { cause: error });
    }
  }

  #drop(): void {
    this.#attempt.abort();
    this.#socket?.close();
    this.#socket = undefined;
    this.#lastError = undefined;
    this.#channels.detach(this.#error);
  }

  #wait(): void {
    const { state, attempt } = this.#machine;
    if (state !== "waiting" && state !== "offline") return;
    const hidden = this.#environment.visible?.get() === false;
    const backoff = state === "offline" ? OFFLINE : hidden ? HIDDEN : RECONNECT;
    const wait = backoffMs(attempt, this.#environment.random, backoff, this.#error?.details.retry_after_ms);
    this.#retryAt = this.#environment.now() + wait;
    this.#cancelTimer = this.#environment.timer(wait, () => this.#dispatch("due"));
  }

  #publish(): void {
    const status = statusAfter(this.#status, this.#machine, {
      now: this.#environment.now(),
      retryAt: this.#retryAt,
      error: this.#error,
      behind: this.#behind,
    });
    if (status === this.#status) return;
    this.#status = status;
    for (const listener of [...this.#listeners]) this.#tell(listener);
  }

  #tell(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      const message = "A listener of the connection threw.";
      this.#options.log({ level: "error", event: "listener_failed", message, error });
    }
  }
}

const NO_SOCKET =
  "No WebSocket to the server could be created. Check the client's `url` and the page's Content-Security-Policy.";
const REFUSED = "The server cannot be reached, or refused the socket. The client tries again.";

const EVENT_OF = { live: "caught_up", replaying: "behind", stale: "stale" } as const satisfies Record<
  Progress,
  Event
>;

function moreSpecific(lastError: KhalaError | undefined, closed: KhalaError): KhalaError {
  return lastError && lastError.code === closed.code ? lastError : closed;
}

function noNetwork(): KhalaError {
  return new KhalaError("unavailable", "There is no network. The client reconnects when there is one.");
}

/** Parts of the status that are not in the state machine. */
export interface StatusFacts {
  readonly now: number;
  readonly retryAt: number | undefined;
  readonly error: KhalaError | undefined;
  readonly behind: number | undefined;
}

/** The status of a machine state; the same object if nothing changed. */
function statusAfter(
  before: ConnectionStatus,
  { state: inner, attempt }: Machine,
  { now, retryAt, error, behind }: StatusFacts,
): ConnectionStatus {
  const state: ConnectionState = inner === "waiting" ? "connecting" : inner;
  const status: ConnectionStatus = {
    state,
    since: state === before.state ? before.since : now,
    attempt: state === "live" ? 0 : attempt,
    ...(retryAt !== undefined && { retryAt }),
    ...(state === "replaying" && behind !== undefined && { behind }),
    ...(error && { error }),
    role: before.role,
  };
  return sameStatus(before, status) ? before : status;
}
