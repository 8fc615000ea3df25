import type { KhalaError } from "@khala/contracts";
import type {
  EventFrameJson,
  HelloJson,
  PresenceJson,
  ResyncJson,
  RunJson,
  SnapshotJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";

/** A socket frame that changes a conversation or its presence. */
export type ConversationFrame = HelloJson | SnapshotJson | EventFrameJson | ResyncJson | PresenceJson;

/** The state to resume a conversation from, such as in a new tab. */
export interface ConversationState {
  readonly messages: readonly TranscriptMessageJson[];
  readonly run: RunJson | null;
  readonly cursor: string;
  readonly seq: string;
}

/** The source of conversation frames: this tab's socket, or the leader tab. */
export interface ConversationSource {
  /** Follows until the signal aborts, from `sink.position()` whenever it (re)attaches. */
  follow(convId: string, sink: ConversationSink, signal: AbortSignal): void;
}

export interface ConversationSink {
  /** The position to resume from; undefined for the whole conversation. */
  position(): string | undefined;
  /** Replaces the state with that of another tab or of GET /chat/:conv_id. */
  restore(state: ConversationState): void;
  frame(frame: ConversationFrame): void;
  /** Whether frames arrive, and why not. */
  health(live: boolean, error?: KhalaError): void;
}
