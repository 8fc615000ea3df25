import { CONVERSATION_CHANNEL, KhalaError } from "@khala/contracts";
import type { SocketChannelJson } from "@khala/contracts/ops/v1";
import type { Attached, ConversationPlane, PresenceParams } from "../../conversations/plane.ts";
import type { StartPosition, TimelineSubscriber } from "../../conversations/timeline/attachment.ts";
import { errorFrame } from "../../conversations/timeline/timeline.ts";
import type { Context } from "../../kit/context.ts";
import { readConvId, readPresence, readStart } from "../http/conversation_request.ts";
import { type ClientSocket, type Connection, clientError, type SocketEndpoint } from "./connection.ts";

/** `/ws?conv_id=&token=[&after=<cursor>|&replay=<n>][&device=<name>]`: one conversation in plain JSON. */
export function conversationEndpoint(context: Context, conversations: ConversationPlane): SocketEndpoint {
  return {
    path: "/ws",
    kind: "conversation",
    action: "conversation.read",
    open({ searchParams }) {
      const convId = readConvId(searchParams.get("conv_id"));
      const start = readStart({
        after: searchParams.get("after") ?? undefined,
        replay: searchParams.get("replay") ?? undefined,
      });
      const presence = readPresence({
        device: searchParams.get("device") ?? undefined,
        presence: searchParams.get("presence") ?? undefined,
      });
      return (connection) => {
        const socket = new ConversationSocket(connection, convId, context);
        void socket.attach(conversations, start, presence);
        return socket;
      };
    },
  };
}

/** A socket that follows one conversation. Messages are sent over HTTP, so that they get a response. */
class ConversationSocket implements ClientSocket {
  readonly #connection: Connection;
  readonly #convId: string;
  readonly #context: Context;
  #attached: Attached | undefined;
  #authenticating = false;
  #closed = false;

  constructor(connection: Connection, convId: string, context: Context) {
    this.#connection = connection;
    this.#convId = convId;
    this.#context = context;
  }

  /** Joins the conversation; ends the connection when that cannot be. Never rejects. */
  async attach(
    conversations: ConversationPlane,
    start: StartPosition,
    presence: PresenceParams | undefined,
  ): Promise<void> {
    const connection = this.#connection;
    const subscriber: TimelineSubscriber = {
      offer: (frame) => connection.outbox.offer(frame.plain),
      end: (error) => connection.end(error),
    };
    try {
      const { viewer } = connection;
      const attached = await conversations.attach(viewer, this.#convId, subscriber, start, presence);
      if (this.#closed) return attached.close();
      this.#attached = attached;
      // The token may have changed since.
      attached.check(connection.viewer);
      // `onWritable` may have been called before there was an attachment.
      attached.drained();
    } catch (error) {
      const known = clientError(error, this.#context);
      connection.refused(known.code);
      connection.end(known);
    }
  }

  receive(data: Buffer, binary: boolean): void {
    let message: { type?: unknown; token?: unknown; typing?: unknown } | null = null;
    try {
      if (!binary) message = JSON.parse(data.toString());
    } catch {
      // Answered below like everything else that is not understood.
    }
    if (message?.type === "ping") return this.#connection.outbox.send('{"type":"pong"}');
    if (message?.type === "auth" && typeof message.token === "string")
      return void this.#authenticate(message.token);
    if (message?.type === "typing" && typeof message.typing === "boolean")
      return this.#typing(message.typing);
    this.#refuse(
      new KhalaError(
        "invalid_request",
        'Send {"type":"ping"}, {"type":"typing","typing":true} or {"type":"auth","token":"…"} as text. To say something, POST /chat.',
      ),
    );
  }

  // A token without the scope is refused before it is used. This one no longer reaches another subject's conversation.
  viewerChanged(): void {
    try {
      this.#attached?.check(this.#connection.viewer);
    } catch (error) {
      this.#connection.end(clientError(error, this.#context));
    }
  }

  onWritable(): void {
    this.#attached?.drained();
  }

  heartbeat(): void {
    this.#attached?.heartbeat();
    this.#connection.ping();
  }

  sendError(error: KhalaError): void {
    this.#connection.outbox.send(errorFrame(this.#convId, error).json);
  }

  close(): void {
    this.#closed = true;
    this.#attached?.close();
    this.#attached = undefined;
  }

  channels(): SocketChannelJson[] {
    return [{ topic: `${CONVERSATION_CHANNEL}${this.#convId}` }];
  }

  #typing(on: boolean): void {
    try {
      this.#attached?.typing(on);
    } catch (error) {
      this.#refuse(clientError(error, this.#context));
    }
  }

  async #authenticate(token: string): Promise<void> {
    if (this.#authenticating)
      return this.#refuse(
        new KhalaError("limit_exceeded", "A token is being checked already. Wait for its answer."),
      );
    this.#authenticating = true;
    try {
      const { expiresAt } = await this.#connection.authenticate(token);
      if (this.#closed) return;
      const expires_at = new Date(expiresAt).toISOString();
      this.#connection.outbox.send(JSON.stringify({ type: "authenticated", expires_at }));
    } catch (error) {
      this.#refuse(clientError(error, this.#context));
    } finally {
      this.#authenticating = false;
    }
  }

  #refuse(error: KhalaError): void {
    this.#connection.refused(error.code);
    if (!this.#closed) this.sendError(error);
  }
}
