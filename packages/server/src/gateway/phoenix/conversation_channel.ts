import { CONVERSATION_CHANNEL, KhalaError, phoenix, SCOPES } from "@khala/contracts";
import { AuthSchema } from "@khala/contracts/sync/v1";
import type { Attached, Caller, ConversationPlane } from "../../conversations/plane.ts";
import type { StartPosition, TimelineSubscriber } from "../../conversations/timeline/attachment.ts";
import { errorFrame, type OutgoingFrames } from "../../conversations/timeline/timeline.ts";
import { hasScope, requireScope } from "../auth/claims.ts";
import { callerOf, readChat, readConvId, readStart } from "../http/conversation_request.ts";
import { readMessage } from "../http/read_request.ts";
import { type Channel, type ChannelFactory, type ChannelSocket, ok, type Reply } from "./channel.ts";

/** The channels `conversation:<conv_id>`: the frames of `/ws`, and messages are sent over it as well. */
export function conversationChannel(conversations: ConversationPlane): ChannelFactory {
  return (socket, params) => {
    if (!socket.topic.startsWith(CONVERSATION_CHANNEL)) return undefined;
    const convId = readConvId(socket.topic.slice(CONVERSATION_CHANNEL.length));
    requireScope(socket.viewer(), SCOPES.chat);
    const { after, replay } = (params ?? {}) as { after?: unknown; replay?: unknown };
    // Null is how JavaScript says "none" in JSON.
    const start = readStart({ after: after ?? undefined, replay: replay ?? undefined });
    return new ConversationChannel(socket, convId, start, conversations);
  };
}

class ConversationChannel implements Channel {
  readonly #socket: ChannelSocket;
  readonly #convId: string;
  readonly #start: StartPosition;
  readonly #conversations: ConversationPlane;
  #attached: Attached | undefined;
  #closed = false;

  constructor(socket: ChannelSocket, convId: string, start: StartPosition, conversations: ConversationPlane) {
    this.#socket = socket;
    this.#convId = convId;
    this.#start = start;
    this.#conversations = conversations;
  }

  async open(joined: () => void): Promise<void> {
    const subscriber: TimelineSubscriber = {
      offer: (frame) => {
        // A frame means that access was granted.
        joined();
        return this.#offer(frame);
      },
      end: (error) => this.#socket.end(error),
    };
    const attached = await this.#conversations.attach(this.#caller(), this.#convId, subscriber, this.#start);
    if (this.#closed) return attached.close();
    this.#attached = attached;
    // `onWritable` may have been called before there was an attachment.
    attached.drained();
  }

  async receive(event: string, payload: unknown): Promise<Reply> {
    if (event === "auth") {
      const { expiresAt } = await this.#socket.authenticate(readMessage(AuthSchema, payload).token);
      return ok(JSON.stringify({ expires_at: new Date(expiresAt).toISOString() }));
    }
    const caller = this.#caller();
    switch (event) {
      case "chat":
        return ok(JSON.stringify(await this.#conversations.chat(caller, this.#readChat(payload))));
      case "stop":
        return ok(JSON.stringify(await this.#conversations.stopRun(caller, this.#convId)));
      case "state":
        return ok(JSON.stringify(await this.#conversations.state(caller, this.#convId)));
      default:
        throw new KhalaError(
          "invalid_request",
          `There is no event "${event}". Push chat, stop, state or auth.`,
        );
    }
  }

  onWritable(): void {
    this.#attached?.drained();
  }

  heartbeat(): void {
    this.#attached?.heartbeat();
  }

  sendError(error: { code: string; message: string }): void {
    const { json } = errorFrame(this.#convId, error);
    this.#socket.outbox.send(phoenix.pushText(null, this.#socket.topic, "frame", json));
  }

  close(): void {
    this.#closed = true;
    this.#attached?.close();
    this.#attached = undefined;
  }

  #offer(frame: OutgoingFrames): boolean {
    if (hasScope(this.#socket.viewer(), SCOPES.chat)) return this.#socket.outbox.offer(frame.phoenix);
    // A refreshed token may allow less than the one that joined.
    this.#socket.end(new KhalaError("missing_scope", `The token does not allow "${SCOPES.chat}" any more.`));
    return true;
  }

  #caller(): Caller {
    const viewer = this.#socket.viewer();
    requireScope(viewer, SCOPES.chat);
    return callerOf(viewer);
  }

  #readChat(payload: unknown) {
    const isObject = typeof payload === "object" && payload !== null && !(payload instanceof Uint8Array);
    if (!isObject) throw new KhalaError("invalid_request", 'Push chat with {"message":"…"}.');
    return readChat({ ...payload, conv_id: this.#convId });
  }
}
