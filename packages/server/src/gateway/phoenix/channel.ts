import { KhalaError } from "@khala/contracts";
import type { SocketChannelJson } from "@khala/contracts/ops/v1";
import { requireScope } from "../../access/access.ts";
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
  /** Verifies a new token for the open socket and uses it from now on; every channel of the socket hears of it. */
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
  /** Where it stands in what it follows, for operators. */
  cursors?(): NonNullable<SocketChannelJson["cursors"]>;
}

/** Opens a channel when its topic matches; undefined lets the next one try. Throws KhalaError to refuse the join. */
export type ChannelFactory = (socket: ChannelSocket, params: unknown) => Channel | undefined;

/** Ends the channel if the socket's new token does not allow the action any more. */
export function endUnlessAllowed(socket: ChannelSocket, action: Action): void {
  try {
    requireScope(socket.viewer(), action);
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
