import { inexactInteger, inexactIntegerError, KhalaError, phoenix } from "@khala/contracts";
import type { SocketChannelJson } from "@khala/contracts/ops/v1";
import { requireScope } from "../../access/access.ts";
import type { Context } from "../../kit/context.ts";
import {
  type ClientSocket,
  type Connection,
  clientError,
  type SocketEndpoint,
} from "../sockets/connection.ts";
import {
  type Channel,
  type ChannelDefinition,
  type ChannelSocket,
  isChannelOf,
  type Reply,
} from "./channel.ts";

export interface PhoenixOptions {
  readonly channels: readonly ChannelDefinition[];
  /** The number of channels a socket may have joined. */
  readonly maxChannels: number;
}

interface Joined {
  readonly definition: ChannelDefinition;
  readonly channel: Channel;
  readonly joinRef: string;
  /** Pushes of one channel are handled one after another. */
  queue: Promise<void>;
  queued: number;
  /** Whether it is refreshing the token: it is notified of the new one after its reply. */
  refreshing: boolean;
}

/** Phoenix's path, and the version of its protocol that we speak. */
const PATH = "/socket/websocket";
const VERSION = "2.0.0";
const MAX_QUEUED = 64;
/** The position of the payload in a text frame. */
const PAYLOAD = /^\[4\]\.?/;

/** The endpoint for Phoenix clients. */
export function phoenixEndpoint(context: Context, options: PhoenixOptions): SocketEndpoint {
  return {
    path: PATH,
    kind: "phoenix",
    open(url) {
      if (url.searchParams.get("vsn") !== VERSION) {
        throw new KhalaError(
          "unsupported_protocol_version",
          `Connect with vsn=${VERSION} (Phoenix Channels V2).`,
        );
      }
      return (connection) => new PhoenixSocket(connection, context, options);
    },
  };
}

/** One client connection that speaks Phoenix Channels V2. */
class PhoenixSocket implements ClientSocket {
  readonly #connection: Connection;
  readonly #context: Context;
  readonly #options: PhoenixOptions;
  readonly #joined = new Map<string, Joined>();

  constructor(connection: Connection, context: Context, options: PhoenixOptions) {
    this.#connection = connection;
    this.#context = context;
    this.#options = options;
  }

  viewerChanged(): void {
    for (const { channel, refreshing } of [...this.#joined.values()])
      if (!refreshing) channel.viewerChanged();
  }

  onWritable(): void {
    for (const { channel } of this.#joined.values()) channel.onWritable();
  }

  heartbeat(): void {
    for (const { channel } of this.#joined.values()) channel.heartbeat();
  }

  sendError(error: KhalaError): void {
    for (const { channel } of this.#joined.values()) channel.sendError(error.toJSON());
  }

  close(): void {
    for (const { channel } of this.#joined.values()) channel.close();
    this.#joined.clear();
  }

  channels(): SocketChannelJson[] {
    return [...this.#joined].map(([topic, { channel }]) => ({ topic, cursors: channel.cursors?.() ?? {} }));
  }

  receive(data: Buffer, binary: boolean): void {
    let message: phoenix.Message;
    let rounded: string | undefined;
    try {
      const text = binary ? "" : data.toString();
      message = binary ? phoenix.decodeBinary(data) : phoenix.decodeText(text);
      rounded = inexactInteger(text);
    } catch (error) {
      return this.#connection.end(
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
    if (rounded !== undefined) return this.#refuseRounded(message, rounded.replace(PAYLOAD, ""));
    if (event === "phx_join") return this.#join(message);
    if (event === "phx_leave") return this.#leave(message);
    this.#push(message);
  }

  /** Answers a message with an integer that was rounded when it was parsed. The channel stays joined. */
  #refuseRounded({ topic, event, ref, joinRef }: phoenix.Message, field: string): void {
    const error = inexactIntegerError(field);
    if (event === "phx_join") return this.#refuse(topic, ref, joinRef ?? ref ?? "", error);
    this.#connection.refused(error.code);
    this.#reply(joinRef ?? this.#joined.get(topic)?.joinRef ?? null, ref, topic, errorReply(error));
  }

  #join({ topic, ref, joinRef, payload }: phoenix.Message): void {
    const reference = joinRef ?? ref ?? "";
    this.#close(topic);
    const { channels, maxChannels } = this.#options;
    try {
      if (this.#joined.size >= maxChannels) {
        throw new KhalaError(
          "limit_exceeded",
          `A socket may have at most ${maxChannels} channels. Leave one first.`,
        );
      }
      const definition = channels.find((each) => isChannelOf(each, topic));
      if (!definition) {
        this.#reply(reference, ref, topic, { status: "error", response: '{"reason":"unmatched topic"}' });
        return this.#pushClose(topic, reference);
      }
      requireScope(this.#connection.viewer, definition.join);
      const channel = definition.open(this.#channelSocket(topic, reference), payload);
      const joined: Joined = {
        definition,
        channel,
        joinRef: reference,
        queue: Promise.resolve(),
        queued: 0,
        refreshing: false,
      };
      this.#joined.set(topic, joined);
      if (channel.open) joined.queue = this.#open(topic, ref, joined);
      else this.#reply(reference, ref, topic, { status: "ok", response: "{}" });
    } catch (error) {
      this.#refuse(topic, ref, reference, error);
    }
  }

  /** Answers the join of a channel that takes a while. Never rejects: queued pushes continue after it. */
  async #open(topic: string, ref: string | null, joined: Joined): Promise<void> {
    const { channel, joinRef } = joined;
    let answered = false;
    const answer = () => {
      if (answered || this.#joined.get(topic) !== joined) return;
      answered = true;
      this.#reply(joinRef, ref, topic, { status: "ok", response: "{}" });
    };
    try {
      await channel.open!(answer);
      answer();
    } catch (error) {
      if (this.#joined.get(topic) !== joined) return;
      if (answered) return this.#end(topic, joinRef, clientError(error, this.#context));
      this.#joined.delete(topic);
      channel.close();
      this.#refuse(topic, ref, joinRef, error);
    }
  }

  #refuse(topic: string, ref: string | null, joinRef: string, error: unknown): void {
    const known = clientError(error, this.#context);
    this.#connection.refused(known.code);
    this.#reply(joinRef, ref, topic, errorReply(known));
    // Clients repeat a refused join for ever; only phx_close stops them.
    if (!known.meaning.retryable) this.#pushClose(topic, joinRef);
  }

  #channelSocket(topic: string, joinRef: string): ChannelSocket {
    const connection = this.#connection;
    return {
      topic,
      outbox: connection.outbox,
      viewer: () => connection.viewer,
      authenticate: (token) => connection.authenticate(token),
      end: (error) =>
        error.code === "slow_consumer" ? connection.end(error) : this.#end(topic, joinRef, error),
    };
  }

  /** Ends a channel for a reason of ours. */
  #end(topic: string, joinRef: string, error: KhalaError): void {
    const joined = this.#joined.get(topic);
    if (joined?.joinRef !== joinRef) return;
    this.#joined.delete(topic);
    joined.channel.sendError(error.toJSON());
    joined.channel.close();
    this.#pushClose(topic, joinRef, error.meaning.retryable ? "phx_error" : "phx_close");
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

  /** After `phx_error` a client joins again, after `phx_close` it does not. */
  #pushClose(topic: string, joinRef: string, event: "phx_close" | "phx_error" = "phx_close"): void {
    this.#connection.outbox.send(phoenix.encodeText({ joinRef, ref: joinRef, topic, event, payload: {} }));
  }

  #push({ topic, event, ref, joinRef, payload }: phoenix.Message): void {
    const joined = this.#joined.get(topic);
    if (!joined || (joinRef !== null && joinRef !== joined.joinRef)) {
      return this.#reply(joinRef, ref, topic, { status: "error", response: '{"reason":"unmatched topic"}' });
    }
    if (joined.queued >= MAX_QUEUED) {
      return this.#connection.end(
        new KhalaError("limit_exceeded", "Too many pushes on one channel are unanswered. Wait for replies."),
      );
    }
    joined.queued++;
    joined.queue = joined.queue.then(async () => {
      let reply: Reply;
      joined.refreshing = event === "auth";
      try {
        this.#requireEvent(joined.definition, event);
        reply = await joined.channel.receive(event, payload);
      } catch (error) {
        const known = clientError(error, this.#context);
        this.#connection.refused(known.code);
        reply = errorReply(known);
      }
      joined.queued--;
      if (this.#joined.get(topic) !== joined) return;
      try {
        this.#reply(joined.joinRef, ref, topic, reply);
      } catch (error) {
        // A ref that came as text may not fit into a binary reply.
        this.#connection.end(clientError(error, this.#context));
      }
      if (!joined.refreshing) return;
      joined.refreshing = false;
      joined.channel.viewerChanged();
    });
  }

  #requireEvent({ events }: ChannelDefinition, event: string): void {
    if (event === "auth") return;
    const action = Object.hasOwn(events, event) ? events[event] : undefined;
    if (action) return requireScope(this.#connection.viewer, action);
    const known = [...Object.keys(events), "auth"].join(", ");
    throw new KhalaError(
      "invalid_request",
      `There is no event ${JSON.stringify(event.slice(0, 100))}. Push ${known}.`,
    );
  }

  #reply(joinRef: string | null, ref: string | null, topic: string, { status, response }: Reply): void {
    const frame =
      typeof response === "string"
        ? phoenix.replyText(joinRef, ref, topic, status, response)
        : phoenix.replyBinary(joinRef, ref, topic, status, response);
    this.#connection.outbox.send(frame);
  }
}

function errorReply(error: KhalaError): Reply {
  return { status: "error", response: JSON.stringify({ error }) };
}
