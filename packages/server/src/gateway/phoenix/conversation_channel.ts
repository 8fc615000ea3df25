import { CONVERSATION_CHANNEL, KhalaError, phoenix } from "@khala/contracts";
import { AuthSchema } from "@khala/contracts/sync/v1";
import { requireScope } from "../../access/access.ts";
import type { Attached, ConversationPlane, PresenceParams } from "../../conversations/plane.ts";
import type { StartPosition, TimelineSubscriber } from "../../conversations/timeline/attachment.ts";
import { errorFrame } from "../../conversations/timeline/timeline.ts";
import { readChat, readConvId, readPresence, readRunId, readStart } from "../http/conversation_request.ts";
import { readMessage } from "../http/read_request.ts";
import {
  type Channel,
  type ChannelDefinition,
  type ChannelSocket,
  endUnlessAllowed,
  ok,
  type Reply,
} from "./channel.ts";

/** The channels `conversation:<conv_id>`: the frames of `/ws`, and messages are sent over it as well. */
export function conversationChannel(conversations: ConversationPlane): ChannelDefinition {
  return {
    topic: CONVERSATION_CHANNEL,
    join: "conversation.read",
    events: {
      chat: "conversation.write",
      stop: "conversation.write",
      state: "conversation.read",
      typing: "conversation.read",
    },
    open(socket, params) {
      const convId = readConvId(socket.topic.slice(CONVERSATION_CHANNEL.length));
      const { after, replay, device, presence } = (params ?? {}) as Readonly<Record<string, unknown>>;
      // JavaScript writes "none" as null in JSON.
      const start = readStart({ after: after ?? undefined, replay: replay ?? undefined });
      const present = readPresence({ device: device ?? undefined, presence: presence ?? undefined });
      return new ConversationChannel(socket, convId, { start, present }, conversations);
    },
  };
}

interface JoinParams {
  readonly start: StartPosition;
  readonly present: PresenceParams | undefined;
}

class ConversationChannel implements Channel {
  readonly #socket: ChannelSocket;
  readonly #convId: string;
  readonly #params: JoinParams;
  readonly #conversations: ConversationPlane;
  #attached: Attached | undefined;
  #closed = false;

  constructor(socket: ChannelSocket, convId: string, params: JoinParams, conversations: ConversationPlane) {
    this.#socket = socket;
    this.#convId = convId;
    this.#params = params;
    this.#conversations = conversations;
  }

  async open(joined: () => void): Promise<void> {
    const subscriber: TimelineSubscriber = {
      offer: (frame) => {
        // A frame means that access was granted.
        joined();
        return this.#socket.outbox.offer(frame.phoenix);
      },
      end: (error) => this.#socket.end(error),
    };
    const attached = await this.#conversations.attach(
      this.#socket.viewer(),
      this.#convId,
      subscriber,
      this.#params.start,
      this.#params.present,
    );
    if (this.#closed) return attached.close();
    this.#attached = attached;
    // The token may have changed since.
    attached.check(this.#socket.viewer());
    // `onWritable` may have been called before there was an attachment.
    attached.drained();
  }

  async receive(event: string, payload: unknown): Promise<Reply> {
    const viewer = this.#socket.viewer();
    switch (event) {
      case "chat":
        return ok(JSON.stringify(await this.#conversations.chat(viewer, this.#readChat(payload))));
      case "stop":
        return ok(JSON.stringify(await this.#conversations.stopRun(viewer, this.#convId, runIdOf(payload))));
      case "state":
        return ok(JSON.stringify(await this.#conversations.state(viewer, this.#convId)));
      case "typing":
        this.#attached?.typing((Object(payload) as { typing?: unknown }).typing === true);
        return ok();
      default: {
        const { expiresAt } = await this.#socket.authenticate(readMessage(AuthSchema, payload).token);
        return ok(JSON.stringify({ expires_at: new Date(expiresAt).toISOString() }));
      }
    }
  }

  viewerChanged(): void {
    endUnlessAllowed(this.#socket, () => {
      const viewer = this.#socket.viewer();
      requireScope(viewer, "conversation.read");
      this.#attached?.check(viewer);
    });
  }

  onWritable(): void {
    this.#attached?.drained();
  }

  heartbeat(): void {
    this.#attached?.heartbeat();
  }

  sendError(error: Parameters<typeof errorFrame>[1]): void {
    const { json } = errorFrame(this.#convId, error);
    this.#socket.outbox.send(phoenix.pushText(null, this.#socket.topic, "frame", json));
  }

  close(): void {
    this.#closed = true;
    this.#attached?.close();
    this.#attached = undefined;
  }

  #readChat(payload: unknown) {
    const isObject = typeof payload === "object" && payload !== null && !(payload instanceof Uint8Array);
    if (!isObject) throw new KhalaError("invalid_request", 'Push chat with {"message":"…"}.');
    return readChat({ ...payload, conv_id: this.#convId });
  }
}

function runIdOf(payload: unknown): string | undefined {
  // JavaScript writes "none" as null in JSON.
  return readRunId((Object(payload) as { run_id?: unknown }).run_id ?? undefined);
}
