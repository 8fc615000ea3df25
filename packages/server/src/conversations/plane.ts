import type {
  ChatResponseJson,
  ConversationStateJson,
  ConversationSummaryJson,
  RunJson,
  StopResponseJson,
} from "@khala/contracts/conversation/v1";
import type { Service } from "../kit/service.ts";
import type { ConversationMetrics } from "./metrics.ts";
import type { Member, Start } from "./timeline/attachment.ts";
import type { TimelineEvent } from "./timeline/timeline.ts";

/** Who asks. A conversation belongs to an org and a subject; for everybody else it does not exist. */
export interface Caller {
  readonly org: string;
  readonly subject: string;
}

/** What happens to a message while a run is under way. */
export type BusyPolicy = "reject" | "queue" | "interrupt";

/** A message that starts a run. */
export interface ChatCommand {
  readonly convId: string;
  readonly message: string;
  readonly idempotencyKey?: string;
  readonly policy?: BusyPolicy;
  /** The id of the user's message; made when absent. */
  readonly messageId?: string;
  /** W3C traceparent of the request. */
  readonly trace?: string;
}

/** A socket that is attached to a conversation. */
export interface Attached {
  /** There is room in the socket's outbox again. */
  room(): void;
  /** Sends a sign of life. */
  heartbeat(): void;
  /** Detaches. The reader stays for a while, in case the client comes back. */
  close(): void;
}

/** An event with the cursor after it. */
export interface FollowedEvent extends TimelineEvent {
  readonly cursor: string;
}

/** Which part of a list is wanted; `after` is the `next` of the page before, or empty. */
export interface PageQuery {
  readonly after: string;
  readonly limit: number;
}

/** A part of a list of conversations, newest first. */
export interface ListPage<Item> {
  readonly conversations: readonly Item[];
  readonly next: string | undefined;
}

/** A conversation as an operator sees it: whose it is and how its last run is, not what is said. */
export interface ListedConversation {
  readonly convId: string;
  readonly owner: string;
  readonly updatedAt: string;
  /** Empty when nothing ran yet. */
  readonly runStatus: string;
}

/** Entries of a log as sockets get them, each as JSON, and the cursor to go on after. */
export interface LogPage {
  readonly events: readonly string[];
  readonly next: string | undefined;
}

/** Conversations: runs that outlive their sockets, and sockets that outlive their servers. */
export interface ConversationPlane extends Service {
  readonly metrics: ConversationMetrics;
  /** Starts a run, or queues it. Answers when it is durable; the same key is answered the same. */
  chat(caller: Caller, command: ChatCommand): Promise<ChatResponseJson>;
  /** Stops the run that is under way, on whichever server it is. */
  stopRun(caller: Caller, convId: string): Promise<StopResponseJson>;
  /** What the conversation comes to, and the cursor that it is true at; not_found for one that is not the caller's. */
  state(caller: Caller, convId: string): Promise<ConversationStateJson>;
  /** The run that is under way or was the last; null when there was none. */
  run(caller: Caller, convId: string): Promise<RunJson | null>;
  /** The caller's own conversations. */
  list(caller: Caller, query: PageQuery): Promise<ListPage<ConversationSummaryJson>>;
  /** Those of an org, whoever they belong to. */
  listOfOrg(org: string, query: PageQuery): Promise<ListPage<ListedConversation>>;
  /** What the log has after a cursor, or all that is kept; stale_cursor when it is not all there any more. */
  log(caller: Caller, convId: string, after: string | undefined, limit: number): Promise<LogPage>;
  /** Sockets of this server that are attached to a conversation. */
  attachedTo(convId: string): number;
  /** Removes the conversation: its log, its runs, its record. */
  remove(caller: Caller, convId: string): Promise<void>;
  /** Attaches a socket. A conversation that does not exist is made, and is the caller's. */
  attach(caller: Caller, convId: string, member: Member, start: Start): Promise<Attached>;
  /** The events from a cursor on, as they come, until the signal aborts; stale_cursor when they are not all there any more. */
  follow(caller: Caller, convId: string, after: string, signal: AbortSignal): AsyncIterable<FollowedEvent>;
}
