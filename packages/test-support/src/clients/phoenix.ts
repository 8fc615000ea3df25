import { WebSocket } from "ws";

/** The part of the npm client that tests use. */
export interface PhoenixSocket {
  connect(): void;
  disconnect(callback?: () => void): void;
  isConnected(): boolean;
  channel(topic: string, params?: object | (() => object)): PhoenixChannel;
  onOpen(callback: () => void): void;
  onClose(callback: (event: { code: number; reason: string }) => void): void;
  onError(callback: (error: unknown) => void): void;
  onMessage(callback: (message: { topic: string; event: string; payload: unknown }) => void): void;
  /** The transport of the current connection. */
  readonly conn: WebSocket | null;
}

export interface PhoenixChannel {
  readonly state: string;
  join(timeout?: number): PhoenixPush;
  leave(timeout?: number): PhoenixPush;
  push(event: string, payload: object | ArrayBuffer, timeout?: number): PhoenixPush;
  on(event: string, callback: (payload: unknown) => void): number;
  onClose(callback: () => void): number;
  onError(callback: (reason?: unknown) => void): number;
}

export interface PhoenixPush {
  receive(status: "ok" | "error" | "timeout", callback: (response: unknown) => void): PhoenixPush;
}

type SocketClass = new (endpoint: string, options: object) => PhoenixSocket;

/** The npm clients that must work unmodified. In those before 1.8.9 `authToken` is a value, not a function. */
export const PHOENIX_CLIENTS = [
  { version: "1.8.5", name: "phoenix-1.8.5" },
  { version: "1.8.15", name: "phoenix-1.8.15" },
  { version: "1.8.16", name: "phoenix" },
] as const;

/** One of them. */
export type PhoenixClient = (typeof PHOENIX_CLIENTS)[number];

/** A socket of an npm client over `ws`. Disposing of it disconnects. */
export async function openPhoenix(
  client: PhoenixClient,
  endpoint: string,
  options: object,
): Promise<PhoenixSocket & Disposable> {
  const { Socket }: { Socket: SocketClass } = await import(/* @vite-ignore */ client.name);
  const socket = new Socket(endpoint, { transport: WebSocket, ...options });
  // It closes by itself: waiting for it would slow every test down.
  return Object.assign(socket, { [Symbol.dispose]: () => socket.disconnect() });
}

/** The reply to a push of the npm client. */
export function answerOf<T = Record<string, unknown>>(
  push: PhoenixPush,
): Promise<{ status: string; response: T }> {
  return new Promise((resolve) => {
    for (const status of ["ok", "error", "timeout"] as const)
      push.receive(status, (response) => resolve({ status, response: response as T }));
  });
}
