import { type ErrorCode, type ErrorDetails, KhalaError } from "@khala/contracts";
import type { ConnectionStatus } from "../connection/port.ts";
import type { ConversationFrame, ConversationState } from "../conversation/source.ts";
import type { BroadcastLike, Environment } from "../environment.ts";
import type { Cursor, StoredDocument } from "../storage/storage.ts";
import type { TopicPhase, Update } from "../sync/source.ts";

/** Part of the lock's and channel's name, so that tabs with another version form their own group. */
const VERSION = 1;

/** The name of the lock and channel of a scope's tabs. */
export const groupName = (scope: string) => `khala:tabs:${VERSION}:${scope}`;

/** A topic or a conversation, by name. */
export interface Subject {
  readonly plane: "sync" | "conversation";
  readonly name: string;
}

/** A subject as the key of a map. */
export const keyOf = ({ plane, name }: Subject) => `${plane}:${name}`;

/** A message to the leader tab. Other tabs ignore it. */
export type ToLeader = { readonly from: string } & FollowerMessage;

export type FollowerMessage =
  /** `knows` is the leader that this tab follows, if any. */
  | { readonly type: "ping"; readonly knows?: string }
  /** `ask` numbers the requests of a tab, so that late answers to older ones are recognised. */
  | ({ readonly type: "follow"; readonly ask: number; readonly position?: Cursor | string } & Subject)
  | ({ readonly type: "next"; readonly ask: number } & Subject)
  | ({ readonly type: "unfollow" } & Subject)
  /** The tab is visible: connect without backoff. */
  | { readonly type: "connect" }
  | { readonly type: "bye" };

/** A message from the leader tab: to all, or with `to`, to one. */
export type FromLeader = { readonly leader: string } & LeaderMessage;

export type LeaderMessage =
  | { readonly type: "leading"; readonly status: StatusWire }
  /** The tab was silent for too long: it must follow again. */
  | { readonly type: "dropped"; readonly to: string }
  /** The tab is up to date. */
  | ({ readonly type: "current"; readonly to: string; readonly ask: number } & Subject)
  | ({ readonly type: "part"; readonly to: string; readonly ask: number; readonly part: Part } & Subject)
  /** The state was replaced: follow again. */
  | ({ readonly type: "replaced" } & Subject)
  | { readonly type: "batch"; readonly name: string; readonly batch: Batch }
  | { readonly type: "phase"; readonly name: string; readonly phase: TopicPhase; readonly error?: ErrorWire }
  | { readonly type: "frame"; readonly name: string; readonly frame: ConversationFrame }
  | { readonly type: "health"; readonly name: string; readonly live: boolean; readonly error?: ErrorWire };

/** Changes, and the positions before and after them. */
export interface Batch {
  readonly from: Cursor;
  readonly updates: readonly Update[];
  readonly through: Cursor;
}

/** A part of the leader's state; the last one has its position. */
export interface Part {
  readonly documents?: readonly StoredDocument[];
  readonly messages?: ConversationState["messages"];
  readonly end?: { readonly cursor: Cursor } | Omit<ConversationState, "messages">;
}

export type ErrorWire = { readonly code: ErrorCode; readonly message: string } & ErrorDetails;
export type StatusWire = Omit<ConnectionStatus, "error" | "role"> & { readonly error?: ErrorWire };

/** An error as JSON: objects lose their class between tabs. */
export function errorWire(error: KhalaError | undefined): { error?: ErrorWire } {
  return error ? { error: error.toJSON() } : {};
}

/** Restores an error from another tab. */
export function errorOf(wire: ErrorWire | undefined): KhalaError | undefined {
  if (!wire) return undefined;
  const { code, message, ...details } = wire;
  return new KhalaError(code, message, details);
}

/** The typed broadcast channel of a group of tabs. */
export class TabChannel {
  readonly #channel: BroadcastLike;
  #closed = false;

  constructor(environment: Environment, scope: string, receive: (message: ToLeader | FromLeader) => void) {
    if (!environment.openBroadcast)
      throw new KhalaError(
        "invalid_request",
        "This platform has no BroadcastChannel to share a connection between tabs. Use shareTabs: false.",
      );
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
