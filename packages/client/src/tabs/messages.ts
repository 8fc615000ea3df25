import { type ErrorCode, type ErrorDetails, KhalaError } from "@khala/contracts";
import type { ConnectionStatus } from "../connection/port.ts";
import type { ConversationFrame, ConversationState } from "../conversation/source.ts";
import type { BroadcastLike, Environment } from "../environment.ts";
import type { Cursor, StoredDocument } from "../storage/storage.ts";
import type { TopicPhase, Update } from "../sync/source.ts";

/** Part of the names of lock and channel: tabs of another version are another group, so no message has to be understood twice. */
const VERSION = 1;

/** The name of the lock and of the channel that the tabs of a scope share. */
export const groupName = (scope: string) => `khala:tabs:${VERSION}:${scope}`;

/** What is followed: a topic or a conversation, by its name. */
export interface Subject {
  readonly plane: "sync" | "conversation";
  readonly name: string;
}

/** From a tab to the one that leads. Whoever does not lead ignores it. */
export type ToLeader = { readonly from: string } & FollowerMessage;

export type FollowerMessage =
  /** `knows`: the leader that this tab follows, if there is one. */
  | { readonly type: "ping"; readonly knows?: string }
  /** `ask` numbers the questions of a tab, so that late answers to older ones are known. */
  | ({ readonly type: "follow"; readonly ask: number; readonly position?: Cursor | string } & Subject)
  | ({ readonly type: "next"; readonly ask: number } & Subject)
  | ({ readonly type: "unfollow" } & Subject)
  /** Somebody looks at that tab and waits: do not wait any longer to connect. */
  | { readonly type: "connect" }
  | { readonly type: "bye" };

/** From the tab that leads: to all, or with `to`, to one. */
export type FromLeader = { readonly leader: string } & LeaderMessage;

export type LeaderMessage =
  | { readonly type: "leading"; readonly status: StatusWire }
  /** Nothing was heard of that tab for long: it has to follow anew. */
  | { readonly type: "dropped"; readonly to: string }
  /** What that tab has is as new as what the leader has. */
  | ({ readonly type: "current"; readonly to: string; readonly ask: number } & Subject)
  | ({ readonly type: "part"; readonly to: string; readonly ask: number; readonly part: Part } & Subject)
  /** What there is was replaced: follow anew. */
  | ({ readonly type: "replaced" } & Subject)
  | { readonly type: "batch"; readonly name: string; readonly batch: Batch }
  | { readonly type: "phase"; readonly name: string; readonly phase: TopicPhase; readonly error?: ErrorWire }
  | { readonly type: "frame"; readonly name: string; readonly frame: ConversationFrame }
  | { readonly type: "health"; readonly name: string; readonly live: boolean; readonly error?: ErrorWire };

/** Changes, and between which positions they lie. */
export interface Batch {
  readonly from: Cursor;
  readonly updates: readonly Update[];
  readonly through: Cursor;
}

/** A part of what the leader has; the last one says where that is true. */
export interface Part {
  readonly documents?: readonly StoredDocument[];
  readonly messages?: ConversationState["messages"];
  readonly end?: { readonly cursor: Cursor } | Omit<ConversationState, "messages">;
}

export type ErrorWire = { readonly code: ErrorCode; readonly message: string } & ErrorDetails;
export type StatusWire = Omit<ConnectionStatus, "error" | "role"> & { readonly error?: ErrorWire };

/** The error as it crosses from tab to tab, where objects lose their class. */
export function errorWire(error: KhalaError | undefined): { error?: ErrorWire } {
  return error ? { error: error.toJSON() } : {};
}

/** The error that came from another tab. */
export function errorOf(wire: ErrorWire | undefined): KhalaError | undefined {
  if (!wire) return undefined;
  const { code, message, ...details } = wire;
  return new KhalaError(code, message, details);
}

/** The channel of a group of tabs: typed, and silent after it was closed. */
export class TabChannel {
  readonly #channel: BroadcastLike;
  #closed = false;

  constructor(environment: Environment, scope: string, receive: (message: ToLeader | FromLeader) => void) {
    if (!environment.openBroadcast)
      throw new KhalaError("invalid_request", "There are no tabs here to share a connection with.");
    this.#channel = environment.openBroadcast(groupName(scope));
    this.#channel.onmessage = ({ data }) => {
      if (!this.#closed && isMessage(data)) receive(data);
    };
  }

  post(message: ToLeader | FromLeader): void {
    if (!this.#closed) this.#channel.postMessage(message);
  }

  close(): void {
    this.#closed = true;
    this.#channel.onmessage = null;
    this.#channel.close();
  }
}

function isMessage(data: unknown): data is ToLeader | FromLeader {
  if (typeof data !== "object" || data === null) return false;
  const { type, from, leader } = data as Record<string, unknown>;
  return typeof type === "string" && (typeof from === "string" || typeof leader === "string");
}
