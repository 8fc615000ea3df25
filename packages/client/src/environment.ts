/** What the client needs of the place it runs in. Tests hand in their own; everybody else gets `browserEnvironment()`. */
export interface Environment {
  /** Milliseconds since 1970. It may jump. */
  now(): number;
  /** In [0, 1). */
  random(): number;
  newId(): string;
  /** Calls `fire` once, after `ms`; what it returns cancels it. */
  timer(ms: number, fire: () => void): () => void;
  /** Lets the platform do what waits, such as input and drawing, and goes on as soon as it may; absent: by a timer. */
  yieldControl?(): Promise<void>;
  openSocket(url: string): SocketLike;
  fetch(url: string, init: RequestInit): Promise<Response>;
  /** Whether there is a network at all, as far as the platform knows; absent: always. */
  readonly online?: Signal;
  /** Whether somebody looks; absent: always. */
  readonly visible?: Signal;
  /** Held by one tab of an origin at a time: absent where tabs do not exist. */
  readonly locks?: LocksLike;
  openBroadcast?(name: string): BroadcastLike;
}

/** Something that is true or not, and says when that changes. */
export interface Signal {
  get(): boolean;
  subscribe(listener: () => void): () => void;
}

/** The part of WebSocket that is used. */
export interface SocketLike {
  readonly bufferedAmount: number;
  send(text: string): void;
  close(code?: number, reason?: string): void;
  onopen: (() => void) | null;
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  onclose: ((event: { readonly code: number; readonly reason: string }) => void) | null;
  onerror: (() => void) | null;
}

/** The part of LockManager that is used: resolves when the callback's promise does; aborts while waiting. */
export interface LocksLike {
  request(name: string, options: { signal: AbortSignal }, hold: () => Promise<void>): Promise<void>;
}

/** The part of BroadcastChannel that is used. */
export interface BroadcastLike {
  postMessage(message: unknown): void;
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  close(): void;
}
