import type { KhalaError } from "@khala/contracts";

/** How the connection stands. One word for programs; `ConnectionStatus` has what a person wants to know. */
export type ConnectionState =
  | "idle"
  | "connecting"
  | "replaying"
  | "live"
  | "stale"
  | "offline"
  | "paused"
  | "unauthorised"
  | "closed";

/** What a screen shows of the connection. A new object whenever something changed, the same one otherwise. */
export interface ConnectionStatus {
  readonly state: ConnectionState;
  /** Since when, in milliseconds since 1970. */
  readonly since: number;
  /** Attempts since it was live; 0 while it is. */
  readonly attempt: number;
  /** When the next attempt is due. */
  readonly retryAt?: number;
  /** How many changes are still to come while it is replaying, once the server has said where the topics stand. */
  readonly behind?: number;
  /** Why it is not live, as far as that is known. */
  readonly error?: KhalaError;
  /** Whether this tab holds the socket, or another one does. */
  readonly role: "own" | "leader" | "follower";
}

/** The one socket, and the channels on it. It reconnects by itself; channels are joined again each time. */
export interface Connection {
  status(): ConnectionStatus;
  subscribe(listener: () => void): () => void;
  /** Joins a Phoenix channel now and after every reconnect, until `leave`. */
  channel(topic: string, handlers: ChannelHandlers): Channel;
  /** Opens the socket if it is not open, without waiting for the next attempt; also ends `paused` and `unauthorised`. */
  connect(): void;
  /** Closes the socket and opens none until `connect`. */
  pause(): void;
  close(): void;
}

export interface ChannelHandlers {
  /** What to join with: asked at each join. */
  params(): Record<string, unknown>;
  /** Joined, with the server's reply; `push` works from here on. */
  onJoined(reply: unknown): void;
  /** The payload of an event that the server pushed, in order. */
  onEvent(event: string, payload: unknown): void;
  /** The socket is gone, or the server closed the channel. With an error that is not retryable it is not joined again. */
  onLeft(error: KhalaError | undefined): void;
}

export interface Channel {
  /**
   * Rejects with the server's KhalaError, or with `unavailable` when the line is down or the reply is late. `onReply` is called with an ok
   * reply before any event that came after it; what awaits the promise may run later.
   */
  push(event: string, payload: unknown, onReply?: (reply: unknown) => void): Promise<unknown>;
  leave(): void;
}
