import type { Viewer } from "../auth/claims.ts";
import type { Outbox } from "../outbox.ts";

/** What a channel answers to a push: JSON text, or bytes for a binary reply. */
export type Reply = { readonly status: "ok" | "error"; readonly response: string | Uint8Array };

/** What a channel knows of the socket that it lives on. */
export interface Link {
  readonly topic: string;
  readonly outbox: Outbox;
  /** Who is on the other side; changes when the token is refreshed. */
  viewer(): Viewer;
  /** Checks a new token for the open socket and takes it over. */
  authenticate(token: string): Promise<Viewer>;
}

/** A joined channel. */
export interface Channel {
  /** Handles a push; throws KhalaError to answer with an error. */
  receive(event: string, payload: unknown): Promise<Reply>;
  /** There is room in the outbox again. */
  room(): void;
  /** Sends the regular sign of life. */
  heartbeat(): void;
  /** Says why the socket is about to be closed. */
  farewell(error: { code: string; message: string }): void;
  close(): void;
}

/** Opens a channel when its topic matches; undefined lets the next one try. Throws KhalaError to refuse the join. */
export type ChannelFactory = (link: Link, params: unknown) => Channel | undefined;

/** An ok reply. */
export function ok(response: string | Uint8Array = "{}"): Reply {
  return { status: "ok", response };
}
