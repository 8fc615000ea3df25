import type { KhalaError } from "@khala/contracts";
import type {
  EventFrameJson,
  HelloJson,
  ResyncJson,
  RunJson,
  SnapshotJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";

/** A frame of a conversation's socket that changes what is shown. */
export type ConversationFrame = HelloJson | SnapshotJson | EventFrameJson | ResyncJson;

/** Everything that a screen needs to go on from: what a new tab gets from the one that holds the socket. */
export interface ConversationState {
  readonly messages: readonly TranscriptMessageJson[];
  readonly run: RunJson | null;
  readonly cursor: string;
  readonly seq: string;
}

/** Where the frames of conversations come from: the socket of this tab, or the tab that holds it. */
export interface ConversationSource {
  /** Follows until the signal aborts, from `sink.position()` whenever it (re)attaches. */
  follow(convId: string, sink: ConversationSink, signal: AbortSignal): void;
}

export interface ConversationSink {
  /** Where to go on from; undefined: the whole conversation is wanted. */
  position(): string | undefined;
  /** The state as another tab, or GET /chat/:conv_id, has it: replaces what is there. */
  restore(state: ConversationState): void;
  frame(frame: ConversationFrame): void;
  /** Whether frames come at the moment, and why not. */
  health(live: boolean, error?: KhalaError): void;
}
