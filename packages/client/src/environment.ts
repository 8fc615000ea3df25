/** The platform that the client runs on. Tests pass their own; the default is `browserEnvironment()`. */
export interface Environment {
  /** Milliseconds since 1970. It may jump. */
  now(): number;
  /** In [0, 1). */
  random(): number;
  newId(): string;
  /** Calls `fire` once, after `ms`. The returned function cancels it. */
  timer(ms: number, fire: () => void): () => void;
  /** Yields to the event loop, so that input and rendering are not blocked. Default: a timer of 0 ms. */
  yieldControl?(): Promise<void>;
  /** Opens a WebSocket that offers these subprotocols. */
  openSocket(url: string, protocols: string[]): SocketLike;
  fetch(url: string, init: RequestInit): Promise<Response>;
  /** The origin of the page, such as "https://app.example.com". Absent where there is no page. */
  readonly origin?: string;
  /** Whether the platform reports a network. Default: always. */
  readonly online?: Signal;
  /** Whether the page is visible. Default: always. */
  readonly visible?: Signal;
  /** Locks that the tabs of an origin share; absent where there are no tabs. */
  readonly locks?: LocksLike;
  openBroadcast?(name: string): BroadcastLike;
}

/** A boolean that notifies of changes. */
export interface Signal {
  get(): boolean;
  subscribe(listener: () => void): () => void;
}

/** The part of WebSocket that is used. */
export interface SocketLike {
  send(text: string): void;
  close(code?: number, reason?: string): void;
  onopen: (() => void) | null;
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  onclose: ((event: { readonly code: number; readonly reason: string }) => void) | null;
  onerror: (() => void) | null;
}

/**
 * The part of LockManager that is used: resolves when the callback's promise does, and aborts while waiting. `steal` takes the
 * lock at once: the request of the one that held it rejects.
 */
export interface LocksLike {
  request(
    name: string,
    options: { readonly signal: AbortSignal } | { readonly steal: true },
    hold: () => Promise<void>,
  ): Promise<void>;
}

/** The part of BroadcastChannel that is used. */
export interface BroadcastLike {
  postMessage(message: unknown): void;
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  close(): void;
}
