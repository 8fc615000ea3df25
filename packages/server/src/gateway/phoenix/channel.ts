import { KhalaError } from "@khala/contracts";
import type { SocketChannelJson } from "@khala/contracts/ops/v1";
import type { Action } from "../../access/actions.ts";
import type { Viewer } from "../../access/viewer.ts";
import type { Encoding } from "../../sync/read/update_codec.ts";
import type { Outbox } from "../sockets/outbox.ts";

/** The reply to a push: JSON text, or bytes for a binary reply. */
export type Reply = { readonly status: "ok" | "error"; readonly response: string | Uint8Array };

/** A channel's view of its socket. */
export interface ChannelSocket {
  readonly topic: string;
  readonly outbox: Outbox;
  /** The authenticated caller; changes when the token is refreshed. */
  viewer(): Viewer;
  /** Verifies a new token for the open socket and uses it from now on; notifies every channel of the socket. */
  authenticate(token: string): Promise<Viewer>;
  /** Ends the channel with an error; the client joins again if it is retryable. `slow_consumer` closes the whole socket. */
  end(error: KhalaError): void;
}

/** A joined channel. */
export interface Channel {
  /**
   * For a channel whose join takes a while. The join is answered when this resolves, or before that by calling
   * `joined`, which comes before the first frame; it is refused with what this throws. Pushes wait.
   */
  open?(joined: () => void): Promise<void>;
  /** Handles a push; throws KhalaError to answer with an error. */
  receive(event: string, payload: unknown): Promise<Reply>;
  /** The socket's token was refreshed, over this channel or another: what the new one does not allow ends now. */
  viewerChanged(): void;
  /** The outbox accepts frames again. */
  onWritable(): void;
  /** Sends the regular sign of life. */
  heartbeat(): void;
  /** Says why the socket is about to be closed. */
  sendError(error: { code: string; message: string }): void;
  close(): void;
  /** Its positions in the topics it follows, for operators. */
  cursors?(): NonNullable<SocketChannelJson["cursors"]>;
}

/** A kind of channel: who may join it, and who may push what. */
export interface ChannelDefinition {
  /** Its topic, or the beginning of its topics if it ends with a colon. */
  readonly topic: string;
  /** The action a caller must be allowed to take to join; a resource may refuse it later. */
  readonly join: Action;
  /** The events that clients push besides `auth`, and the action of each. */
  readonly events: Readonly<Record<string, Action>>;
  /** Opens the channel for a join. Throws KhalaError to refuse it. */
  open(socket: ChannelSocket, params: unknown): Channel;
}

/** Whether the definition is for this topic. */
export function isChannelOf({ topic }: ChannelDefinition, joined: string): boolean {
  return topic.endsWith(":") ? joined.startsWith(topic) : joined === topic;
}

/** Ends the channel if the socket's new token does not pass the check any more. */
export function endUnlessAllowed(socket: ChannelSocket, check: () => void): void {
  try {
    check();
  } catch (error) {
    socket.end(error as KhalaError);
  }
}

/** An ok reply. */
export function ok(response: string | Uint8Array = "{}"): Reply {
  return { status: "ok", response };
}

/** How the client wants to be written to: the join parameter `encoding`. */
export function encodingOf(params: unknown): Encoding {
  const encoding = (params as { encoding?: unknown } | null)?.encoding ?? "json";
  if (encoding === "json" || encoding === "proto") return encoding;
  throw new KhalaError("invalid_request", 'The encoding is "json" or "proto".', { field: "encoding" });
}
