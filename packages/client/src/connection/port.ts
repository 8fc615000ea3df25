import type { KhalaError } from "@khala/contracts";

/** The connection's state. `ConnectionStatus` has the details. */
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

/** The connection's status for rendering. The same object until something changes. */
export interface ConnectionStatus {
  readonly state: ConnectionState;
  /** Start of the state, in milliseconds since 1970. */
  readonly since: number;
  /** Attempts since it was live; 0 while it is. */
  readonly attempt: number;
  /** When the next attempt is due. */
  readonly retryAt?: number;
  /** Changes left to replay, once known. */
  readonly behind?: number;
  /** Why it is not live, if known. */
  readonly error?: KhalaError;
  /** Whether this tab holds the socket, or another one does. */
  readonly role: "own" | "leader" | "follower";
}

/** Whether nothing of a status has changed. */
export function sameStatus(before: ConnectionStatus, after: ConnectionStatus): boolean {
  const names = Object.keys({ ...before, ...after }) as (keyof ConnectionStatus)[];
  return names.every((name) => before[name] === after[name]);
}

/** The socket and its channels. It reconnects automatically and rejoins the channels. */
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
  /** The join parameters, read at each join. */
  params(): Record<string, unknown>;
  /** Joined, with the server's reply; `push` works from here on. */
  onJoined(reply: unknown): void;
  /** The payload of an event that the server pushed, in order. */
  onEvent(event: string, payload: unknown): void;
  /** The socket or the channel closed. After an error that is not retryable it is not rejoined. */
  onLeft(error: KhalaError | undefined): void;
}

export interface Channel {
  /**
   * Rejects with the server's KhalaError, or with `unavailable` when disconnected or the reply is late. `onReply` is called with an ok
   * reply before any later event; code that awaits the promise may run after it.
   */
  push(event: string, payload: unknown, onReply?: (reply: unknown) => void): Promise<unknown>;
  leave(): void;
}
