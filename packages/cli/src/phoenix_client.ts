import { phoenix } from "@khala/contracts";
import { Refused } from "./api.ts";
import { Failure } from "./failure.ts";

/** How a connection ended. The reason is a code of the error table when the server ended it. */
export interface Ended {
  readonly code: number;
  readonly reason: string;
}

/** A joined Phoenix channel on a socket of its own. */
export interface Channel {
  /** Pushes an event and waits for its reply; a refusal is thrown with its code. */
  push(event: string, payload: unknown): Promise<unknown>;
  /** Resolves when the socket is closed, whoever closed it. */
  readonly ended: Promise<Ended>;
  close(): void;
}

export interface JoinOptions {
  readonly url: string;
  readonly token: string;
  readonly topic: string;
  /** Closes the socket, also while it connects. */
  readonly signal: AbortSignal;
  /** Called for each event that the server pushes on the channel, in order. */
  readonly onPush: (event: string, payload: unknown) => void;
}

/** The socket is gone, or never was: it may be tried again. */
export class ConnectionLost extends Failure {}

const REPLY_MS = 10_000;
const BEAT_MS = 30_000;

interface Waiting {
  readonly resolve: (response: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** Connects with Phoenix Channels V2 and joins a channel; rejects when either fails. */
export async function joinChannel({ url, token, topic, signal, onPush }: JoinOptions): Promise<Channel> {
  const address = new URL("/socket/websocket", url.replace(/^http/, "ws"));
  address.search = new URLSearchParams({ vsn: "2.0.0", token }).toString();
  const socket = new WebSocket(address);
  const waiting = new Map<string, Waiting>();
  const ended = Promise.withResolvers<Ended>();
  const opened = Promise.withResolvers<void>();
  let refs = 0;
  let heard = true;

  function push(on: string, joinRef: string | null, event: string, payload: unknown): Promise<unknown> {
    const ref = String(++refs);
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const late = setTimeout(
      () => reject(new ConnectionLost(`The server did not answer "${event}" in time.`)),
      REPLY_MS,
    );
    waiting.set(ref, { resolve, reject });
    socket.send(phoenix.encodeText({ joinRef, ref, topic: on, event, payload }));
    return promise.finally(() => {
      clearTimeout(late);
      waiting.delete(ref);
    });
  }

  const close = () => socket.close();
  const late = setTimeout(close, REPLY_MS);
  signal.addEventListener("abort", close);
  if (signal.aborted) close();
  socket.addEventListener("open", () => opened.resolve());
  socket.addEventListener("message", ({ data }) => {
    heard = true;
    const message = phoenix.decodeText(String(data));
    if (message.event === "phx_reply") answer(waiting.get(message.ref ?? ""), message.payload);
    else if (message.topic === topic) onPush(message.event, message.payload);
  });
  socket.addEventListener("close", ({ code, reason }) => {
    clearInterval(beat);
    clearTimeout(late);
    signal.removeEventListener("abort", close);
    const gone = new ConnectionLost(`The connection was closed (${reason || code}).`);
    for (const { reject } of waiting.values()) reject(gone);
    opened.reject(gone);
    ended.resolve({ code, reason });
  });
  // A server that says nothing between two beats is gone, whatever the network believes.
  const beat = setInterval(() => {
    if (!heard) return socket.close(4000, "silent");
    heard = false;
    push("phoenix", null, "heartbeat", {}).catch(() => {});
  }, BEAT_MS);

  try {
    await opened.promise;
    clearTimeout(late);
    const joinRef = String(refs + 1);
    await push(topic, joinRef, "phx_join", {});
    return {
      push: (event, payload) => push(topic, joinRef, event, payload),
      ended: ended.promise,
      close,
    };
  } catch (error) {
    close();
    throw error;
  }
}

function answer(waiting: Waiting | undefined, payload: unknown): void {
  const { status, response } = payload as {
    status: string;
    response: { error?: { code: string; message: string }; reason?: string };
  };
  if (status === "ok") return waiting?.resolve(response);
  const { code = "refused", message = response.reason ?? "The server refused." } = response.error ?? {};
  waiting?.reject(new Refused(code, message));
}
