import type { ArtifactDraftJson, PublishedJson } from "@khala/contracts/blackboard/v1";
import type { EventJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";

/** Which conversation, and whose. */
export interface ConversationKey {
  readonly convId: string;
  readonly org: string;
  /** Who it belongs to. */
  readonly subject: string;
}

/** A turn: what somebody said, and what was said before it. */
export interface Turn extends ConversationKey {
  readonly runId: string;
  /** The id of the answer's message, for events that name none. */
  readonly messageId: string;
  readonly message: string;
  readonly history: readonly TranscriptMessageJson[];
  /** W3C traceparent of the turn, for whatever it calls. */
  readonly trace?: string;
  /** Publishes on the blackboard, as the conversation's owner and within the turn's trace; absent where there is none. */
  readonly publish?: PublishArtifacts;
}

/** Publishes artifacts, all or none, and answers what became of each. */
export type PublishArtifacts = (drafts: readonly ArtifactDraftJson[]) => Promise<readonly PublishedJson[]>;

/** What an engine may say. Where it leaves `message_id` out, the turn's own is meant. */
export type EngineEvent = Omit<EventJson, "run_started" | "run_failed" | "run_stopped">;

/** Whatever makes the answers: a model, a script, another process. */
export interface Engine {
  /**
   * Answers a turn. What it yields is published in that order; what it throws ends the run with an error that people
   * can read. It ends soon after the signal aborts. `run_finished` may be yielded last, to say why and at what cost.
   */
  run(turn: Turn, signal: AbortSignal): AsyncIterable<EngineEvent>;
  /** Called once when the conversation has been idle for long, or the server stops. */
  close?(): Promise<void> | void;
}

/** Makes the engine of a conversation; it is kept and used again for its next turns. */
export type EngineFactory = (conversation: ConversationKey) => Engine;
