import type { Duplex } from "node:stream";
import { type ErrorCode, KhalaError, phoenix } from "@khala/contracts";
import type { RawData, WebSocket } from "ws";
import type { Context } from "../../kit/context.ts";
import type { Viewer } from "../auth/claims.ts";
import { Outbox } from "../outbox.ts";
import type { Channel, ChannelFactory, Link, Reply } from "./channel.ts";

export interface SocketLimits {
  readonly bufferBytes: number;
  readonly channels: number;
  readonly slowMs: number;
  readonly idleMs: number;
  readonly heartbeatMs: number;
}

export interface SocketOptions {
  readonly limits: SocketLimits;
  readonly channels: readonly ChannelFactory[];
  readonly authenticate: (current: Viewer, token: string) => Promise<Viewer>;
  /** A join or a push was answered with an error. */
  readonly onRefused: (code: ErrorCode) => void;
  readonly onClosed: (socket: PhoenixSocket, code: number) => void;
}

interface Joined {
  readonly channel: Channel;
  readonly joinRef: string;
  /** Pushes of one channel are handled one after another. */
  queue: Promise<void>;
  queued: number;
}

const MAX_QUEUED = 64;
const CLOSE_GRACE_MS = 5_000;

/** One client connection that speaks Phoenix Channels V2. */
export class PhoenixSocket {
  readonly #ws: WebSocket;
  readonly #context: Context;
  readonly #options: SocketOptions;
  readonly #outbox: Outbox;
  readonly #joined = new Map<string, Joined>();
  #viewer: Viewer;
  #heardAt: number;
  #beatAt: number;
  #closing = false;

  constructor(ws: WebSocket, stream: Duplex, viewer: Viewer, context: Context, options: SocketOptions) {
    this.#ws = ws;
    this.#viewer = viewer;
    this.#context = context;
    this.#options = options;
    this.#heardAt = this.#beatAt = context.clock.now();
    this.#outbox = new Outbox(ws, stream, options.limits.bufferBytes, context.clock.now, () => {
      for (const { channel } of this.#joined.values()) channel.room();
    });
    ws.on("message", (data, binary) => this.#receive(data, binary));
    ws.on("close", (code) => this.#closed(code));
    // The close event follows and cleans up; a client that breaks its frames is no fault of ours.
    ws.on("error", (error) => context.log.debug({ err: error.message }, "a socket failed"));
  }

  get viewer(): Viewer {
    return this.#viewer;
  }

  get channelCount(): number {
    return this.#joined.size;
  }

  get waitingBytes(): number {
    return this.#outbox.waitingBytes;
  }

  /** Called about once a second: sends heartbeats, ends what has expired, is idle or too slow. */
  tick(now: number): void {
    const { slowMs, idleMs, heartbeatMs } = this.#options.limits;
    const { fullSince } = this.#outbox;
    if (fullSince !== undefined && now - fullSince > slowMs) {
      return this.end(
        new KhalaError(
          "slow_consumer",
          "This socket reads too slowly. Reconnect and resume from the last cursor.",
        ),
      );
    }
    if (now - this.#heardAt > idleMs)
      return this.end(new KhalaError("idle_timeout", "Nothing was heard from this socket for too long."));
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
      for (const { channel } of this.#joined.values()) channel.heartbeat();
    }
  }

  /** Says why, then closes with the code's close code once what waits is flushed. */
  end(error: KhalaError): void {
    if (this.#closing) return;
    this.#closing = true;
    for (const { channel } of this.#joined.values()) {
      channel.farewell(error.toJSON());
      channel.close();
    }
    this.#joined.clear();
    // The client's own close must be heard, also when it was not listened to for a while.
    this.#ws.resume();
    this.#ws.close(error.meaning.close, error.code);
    const cancel = this.#context.clock.after(CLOSE_GRACE_MS, () => this.#ws.terminate());
    this.#ws.once("close", cancel);
  }

  /** Cuts the connection without a word. */
  terminate(): void {
    this.#ws.terminate();
  }

  #closed(code: number): void {
    this.#closing = true;
    for (const { channel } of this.#joined.values()) channel.close();
    this.#joined.clear();
    this.#options.onClosed(this, code);
  }

  #receive(data: RawData, binary: boolean): void {
    if (this.#closing) return;
    this.#heardAt = this.#context.clock.now();
    let message: phoenix.Message;
    try {
      message = binary
        ? phoenix.decodeBinary(data as Buffer)
        : phoenix.decodeText((data as Buffer).toString());
    } catch (error) {
      return this.end(
        error instanceof KhalaError ? error : new KhalaError("invalid_request", "The frame cannot be read."),
      );
    }
    const { topic, event, ref } = message;
    if (topic === "phoenix") {
      const known = event === "heartbeat";
      return this.#reply(null, ref, topic, {
        status: known ? "ok" : "error",
        response: known ? "{}" : '{"reason":"unknown event"}',
      });
    }
    if (event === "phx_join") return this.#join(message);
    if (event === "phx_leave") return this.#leave(message);
    this.#push(message);
  }

  #join({ topic, ref, joinRef, payload }: phoenix.Message): void {
    const reference = joinRef ?? ref ?? "";
    this.#close(topic);
    try {
      if (this.#joined.size >= this.#options.limits.channels) {
        throw new KhalaError(
          "limit_exceeded",
          `A socket has at most ${this.#options.limits.channels} channels. Leave one first.`,
        );
      }
      const link: Link = {
        topic,
        outbox: this.#outbox,
        viewer: () => this.#viewer,
        authenticate: async (token) => {
          this.#viewer = await this.#options.authenticate(this.#viewer, token);
          return this.#viewer;
        },
      };
      const channel = firstOf(this.#options.channels, (open) => open(link, payload));
      if (!channel) {
        this.#reply(reference, ref, topic, { status: "error", response: '{"reason":"unmatched topic"}' });
        return this.#pushClose(topic, reference);
      }
      this.#joined.set(topic, { channel, joinRef: reference, queue: Promise.resolve(), queued: 0 });
      this.#reply(reference, ref, topic, { status: "ok", response: "{}" });
    } catch (error) {
      const known = asKhalaError(error, this.#context);
      this.#options.onRefused(known.code);
      this.#reply(reference, ref, topic, errorReply(known));
      // Clients repeat a refused join for ever; only phx_close stops them.
      if (!known.meaning.retryable) this.#pushClose(topic, reference);
    }
  }

  #leave({ topic, ref, joinRef }: phoenix.Message): void {
    const joined = this.#joined.get(topic);
    this.#reply(joinRef ?? joined?.joinRef ?? null, ref, topic, { status: "ok", response: "{}" });
    // A leave that bears another join_ref is meant for an earlier join, which is closed already.
    if (joinRef === null || joinRef === joined?.joinRef) this.#close(topic);
  }

  /** Shuts a channel down; its `phx_close` bears its own join_ref, so a newer join is not touched by it. */
  #close(topic: string): void {
    const joined = this.#joined.get(topic);
    if (!joined) return;
    this.#joined.delete(topic);
    joined.channel.close();
    this.#pushClose(topic, joined.joinRef);
  }

  #pushClose(topic: string, joinRef: string): void {
    this.#outbox.send(phoenix.encodeText({ joinRef, ref: joinRef, topic, event: "phx_close", payload: {} }));
  }

  #push({ topic, event, ref, joinRef, payload }: phoenix.Message): void {
    const joined = this.#joined.get(topic);
    if (!joined || (joinRef !== null && joinRef !== joined.joinRef)) {
      return this.#reply(joinRef, ref, topic, { status: "error", response: '{"reason":"unmatched topic"}' });
    }
    if (joined.queued >= MAX_QUEUED) {
      return this.end(
        new KhalaError(
          "limit_exceeded",
          "Too many pushes wait for an answer on one channel. Wait for replies.",
        ),
      );
    }
    joined.queued++;
    joined.queue = joined.queue.then(async () => {
      let reply: Reply;
      try {
        reply = await joined.channel.receive(event, payload);
      } catch (error) {
        const known = asKhalaError(error, this.#context);
        this.#options.onRefused(known.code);
        reply = errorReply(known);
      }
      joined.queued--;
      if (this.#joined.get(topic) !== joined) return;
      try {
        this.#reply(joined.joinRef, ref, topic, reply);
      } catch (error) {
        // A ref that came as text may not fit into a binary reply.
        this.end(asKhalaError(error, this.#context));
      }
    });
  }

  #reply(joinRef: string | null, ref: string | null, topic: string, { status, response }: Reply): void {
    const frame =
      typeof response === "string"
        ? phoenix.replyText(joinRef, ref, topic, status, response)
        : phoenix.replyBinary(joinRef, ref, topic, status, response);
    this.#outbox.send(frame);
  }
}

function firstOf<T, R>(items: readonly T[], attempt: (item: T) => R | undefined): R | undefined {
  for (const item of items) {
    const result = attempt(item);
    if (result !== undefined) return result;
  }
  return undefined;
}

function errorReply(error: KhalaError): Reply {
  return { status: "error", response: JSON.stringify({ error }) };
}

/** What a client is told of an error; one that is not ours is logged and stays with us. */
function asKhalaError(error: unknown, context: Context): KhalaError {
  if (error instanceof KhalaError) return error;
  context.log.error({ err: error }, "a channel failed");
  return new KhalaError("internal", "Something went wrong on the server. It is logged there; try again.");
}
