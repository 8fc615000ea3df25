import { KhalaError } from "@khala/contracts";
import type { ParticipantRole } from "../access/actions.ts";
import { StreamGone } from "./log/log.ts";

/** The id of a conversation. It is unique within its org. */
export interface ConversationId {
  readonly org: string;
  readonly convId: string;
}

/** A conversation from its creation to its deletion. The next one of the same id has a higher generation. */
export interface ConversationRef extends ConversationId {
  readonly generation: bigint;
  /** The name of its log. */
  readonly logName: string;
}

/** A conversation's row. */
export interface Conversation extends ConversationRef {
  readonly owner: string;
  /** The caller's role, if it takes part without being the owner. */
  readonly role: ParticipantRole | null;
  readonly run: string | null;
  /** Whether the lease of the active run lasts; null for a run that waits for a person, and without a run. */
  readonly alive: boolean | null;
  /** The milliseconds until the lease of the active run ends. */
  readonly leaseLeftMs: number | null;
  readonly queued: number;
  readonly removed: boolean;
  /** Whether sockets must still be notified of the active branch. */
  readonly unannounced: boolean;
}

/** How a message is handled while a run is active. */
export type BusyPolicy = "reject" | "queue" | "interrupt";

/** A run whose lease this server holds, with the fencing token: nothing is written for one that has lost it. */
export interface LeasedRun extends ConversationId {
  readonly runId: string;
  readonly fence: bigint;
}

/** The roles of messages. */
export const ROLES: readonly string[] = ["user", "assistant", "system"];

/** Whether a text can be the id of a message, a tool call or a key: 1 to 200 printable ASCII characters. */
export function isId(text: string): boolean {
  return /^[\x20-\x7e]{1,200}$/.test(text);
}

/** An id as the key of a map. A `conv_id` has no spaces. */
export function idKey({ org, convId }: ConversationId): string {
  return `${convId} ${org}`;
}

/** A conversation as the key of a map. */
export function refKey(ref: Omit<ConversationRef, "logName">): string {
  return `${ref.generation} ${idKey(ref)}`;
}

/** The conversation was deleted between two steps of a request. */
export function deletedMeanwhile(): KhalaError {
  const message = "The conversation was deleted just now. Try again in a moment to start a new one.";
  return new KhalaError("unavailable", message, { retry_after_ms: 500 });
}

/** For the error of a log: throws it, or that the conversation was deleted. */
export function unlessGone(error: unknown): never {
  throw error instanceof StreamGone ? deletedMeanwhile() : error;
}
