import { CONVERSATION_CHANNEL, KhalaError, SCOPES } from "@khala/contracts";
import type { SocketChannelJson } from "@khala/contracts/ops/v1";
import type { Attached, ConversationPlane } from "../../conversations/plane.ts";
import type { StartPosition, TimelineSubscriber } from "../../conversations/timeline/attachment.ts";
import { errorFrame } from "../../conversations/timeline/timeline.ts";
import type { Context } from "../../kit/context.ts";
import { callerOf, readConvId, readStart } from "../http/conversation_request.ts";
import type { ClientSocket, Connection } from "./connection.ts";
import { shownError } from "./shown_error.ts";
import type { Door } from "./socket_kind.ts";

/** `/ws?conv_id=&token=[&after=<cursor>|&replay=<n>]`: one conversation in plain JSON. */
export function conversationDoor(context: Context, conversations: ConversationPlane): Door {
  return {
    path: "/ws",
    kind: "conversation",
    scope: SCOPES.chat,
    open({ searchParams }) {
      const convId = readConvId(searchParams.get("conv_id"));
      const start = readStart({
        after: searchParams.get("after") ?? undefined,
        replay: searchParams.get("replay") ?? undefined,
      });
      return (connection) => {
        const socket = new ConversationSocket(connection, convId, context);
        void socket.attach(conversations, start);
        return socket;
      };
    },
  };
}

/** A socket that follows one conversation. What people say goes over HTTP, so that it is answered. */
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
  async attach(conversations: ConversationPlane, start: StartPosition): Promise<void> {
    const connection = this.#connection;
    const subscriber: TimelineSubscriber = {
      offer: (frame) => connection.outbox.offer(frame.plain),
      end: (error) => connection.end(error),
    };
    try {
      const attached = await conversations.attach(
        callerOf(connection.viewer),
        this.#convId,
        subscriber,
        start,
      );
      if (this.#closed) return attached.close();
      this.#attached = attached;
      // Room that was made meanwhile was not passed on.
      attached.drained();
    } catch (error) {
      const known = shownError(error, this.#context);
      connection.refused(known.code);
      connection.end(known);
    }
  }

  receive(data: Buffer, binary: boolean): void {
    let message: { type?: unknown; token?: unknown } | null = null;
    try {
      if (!binary) message = JSON.parse(data.toString());
    } catch {
      // Answered below like everything else that is not understood.
    }
    if (message?.type === "ping") return this.#connection.outbox.send('{"type":"pong"}');
    if (message?.type === "auth" && typeof message.token === "string")
      return void this.#authenticate(message.token);
    this.#refuse(
      new KhalaError(
        "invalid_request",
        'Send {"type":"ping"} or {"type":"auth","token":"…"} as text. To say something, POST /chat.',
      ),
    );
  }

  room(): void {
    this.#attached?.drained();
  }

  heartbeat(): void {
    this.#attached?.heartbeat();
    this.#connection.ping();
  }

  farewell(error: KhalaError): void {
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

  async #authenticate(token: string): Promise<void> {
    if (this.#authenticating)
      return this.#refuse(new KhalaError("limit_exceeded", "Wait until the token before is answered."));
    this.#authenticating = true;
    try {
      const { expiresAt } = await this.#connection.authenticate(token);
      if (this.#closed) return;
      const expires_at = new Date(expiresAt).toISOString();
      this.#connection.outbox.send(JSON.stringify({ type: "authenticated", expires_at }));
    } catch (error) {
      this.#refuse(shownError(error, this.#context));
    } finally {
      this.#authenticating = false;
    }
  }

  #refuse(error: KhalaError): void {
    this.#connection.refused(error.code);
    if (!this.#closed) this.farewell(error);
  }
}
