import type { JsonObject } from "@bufbuild/protobuf";
import type { ArtifactDraftJson, PublishedJson } from "@khala/contracts/blackboard/v1";
import type {
  ClientToolJson,
  EventJson,
  PartJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Logger } from "pino";

/** A conversation and its owner. */
export interface ConversationKey {
  readonly convId: string;
  readonly org: string;
  /** The owner. */
  readonly subject: string;
}

/** A turn: the user's message, the history before it, and what an engine may do. */
export interface Turn<Params = JsonObject> extends ConversationKey {
  readonly runId: string;
  /** The message id of the answer, for events without one. */
  readonly messageId: string;
  /** The sender of the message: the owner, a participant or a service. */
  readonly sender: string;
  /** The text of the message; empty when it has files alone. */
  readonly message: string;
  /** The whole message: texts and files, in order. */
  readonly parts: readonly PartJson[];
  /** The settings that were sent with the message, after the engine's schema. */
  readonly params: Params;
  readonly history: readonly TranscriptMessageJson[];
  /** Tools that the client executes, for a model that is offered them: call one with `waits_for: "output"`. */
  readonly tools: readonly ClientToolJson[];
  /** Set when the run continues, after its server was lost or its tool calls were decided: continue after the kept part. */
  readonly resume?: Resume;
  /** Aborts when the run is stopped. */
  readonly signal: AbortSignal;
  /** Names the run and the conversation in every line. */
  readonly logger: Logger;
  /** W3C traceparent of the turn, for calls to other services. */
  readonly trace?: string;
  /** Logs an error, such as of a tool, and returns the sentence that end users may see of it. */
  readonly reportError: (error: unknown) => string;
  /** Adds events beside the answer, such as from a tool: a status, a custom event, a message of its own. */
  post(...events: readonly EngineEvent[]): Promise<void>;
  /** Reads a file of this conversation by its address, `/files/<file_id>`. */
  readFile(url: string): Promise<TurnFile>;
  /** Publishes on the blackboard as the conversation's owner, within the turn's trace. */
  readonly publish: PublishArtifacts;
}

/** The kept part of an answer that continues. */
export interface Resume {
  /** How often a lost server made the run resume, this time included; 0 when it only waited for decisions. */
  readonly attempt: number;
  /**
   * The run's own messages: completed steps, each tool call with its result. The rest was taken back. A call whose `decision`
   * is an approval and that has no result is to be executed now.
   */
  readonly messages: readonly TranscriptMessageJson[];
}

/** The content of a file. */
export interface TurnFile {
  readonly name: string;
  readonly mediaType: string;
  readonly bytes: Uint8Array;
}

/** Publishes artifacts, all or none, and returns one result each. */
export type PublishArtifacts = (drafts: readonly ArtifactDraftJson[]) => Promise<readonly PublishedJson[]>;

/** An event of an engine. Without a `message_id` it belongs to the turn's answer. */
export type EngineEvent = Omit<EventJson, ServerEvent>;

/** The events that the server alone writes. */
type ServerEvent = "run_started" | "run_failed" | "run_stopped" | "run_waiting" | "tool_approval_decided";

/** Answers turns: a model, a script, or another process. */
export interface Engine<Params = JsonObject> {
  /**
   * Answers a turn. Events are published in the order in which they are yielded. An exception fails the run: end users
   * see the message of a PublicError, and a plain sentence for any other. Must end soon after the signal aborts.
   * `run_finished` may come last, with reason and usage.
   */
  run(turn: Turn<Params>, signal: AbortSignal): AsyncIterable<EngineEvent>;
  /**
   * Whether `run` may be called again with `turn.resume`, on any server: when one was lost, and after a person approved a tool
   * call or a client executed it. Otherwise the run fails.
   */
  readonly resumable?: boolean;
  /** Called once, when the conversation is idle for long or the server stops. */
  close?(): Promise<void> | void;
}

/** Creates the engine of a conversation. It is cached for the next turns. */
export interface EngineFactory<Params extends object = object> {
  (conversation: ConversationKey): Engine;
  /** For types alone, never set: what may be sent as `params`. */
  readonly accepts?: Params;
  /** The schema of a message's `params`; anything without one. */
  readonly params?: StandardSchemaV1;
}
