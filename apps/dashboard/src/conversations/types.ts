import type { KhalaClient } from "@khala/client";

type Chat = ReturnType<KhalaClient["conversation"]>;

/** What a screen shows of a conversation. */
export type ConversationView = ReturnType<Chat["state"]>;
export type Message = ConversationView["messages"][number];
export type Part = NonNullable<Message["parts"]>[number];
/** An entry of the log, as sockets get it. */
export type LogEvent = NonNullable<
  Awaited<ReturnType<KhalaClient["conversations"]["log"]>>["events"]
>[number];

/** A conversation in the list. */
export interface ListedConversation {
  readonly convId: string;
  readonly title: string;
  readonly updatedAt: string;
  /** Of the run under way or else the newest; empty when there was none. */
  readonly run: string;
  /** Whose it is, in the list of the org. */
  readonly subject?: string;
  readonly sockets?: number;
}
