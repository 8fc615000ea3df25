import type { JsonObject } from "@bufbuild/protobuf";
import type {
  ChatResponseJson,
  ChooseBranchResponseJson,
  ClientToolJson,
  ConversationStateJson,
  ConversationSummaryJson,
  DecideToolResponseJson,
  EditQueuedRequestJson,
  EventJson,
  ParticipantListJson,
  PartJson,
  PendingApprovalJson,
  PostEventsResponseJson,
  QueueStateJson,
  RunJson,
  StopResponseJson,
  StoredFileJson,
} from "@khala/contracts/conversation/v1";
import type { FailedRunJson } from "@khala/contracts/ops/v1";
import type { Caller } from "../access/viewer.ts";
import type { Service } from "../kit/service.ts";
import type { BusyPolicy, ConversationId } from "./conversation.ts";
import type { ErasedConversations, Erasure } from "./erasure.ts";
import type { ByteRange } from "./files/file_store.ts";
import type { NewFile, StoredFile } from "./files/files.ts";
import type { ForkRequest } from "./messages/fork.ts";
import type { MessagePage } from "./messages/message_store.ts";
import type { ConversationMetrics } from "./metrics.ts";
import type { StartPosition, TimelineSubscriber } from "./timeline/attachment.ts";
import type { TimelineEvent } from "./timeline/timeline.ts";
import type { CallDecision } from "./waiting/decide.ts";

/** A message that starts a run. */
export interface ChatCommand extends ForkRequest {
  readonly convId: string;
  /** Its text; empty when it has files alone, or another answer is wanted. */
  readonly message: string;
  /** Its texts and files, when it is more than a text. Files of `data:` URLs are stored. */
  readonly parts?: readonly PartJson[];
  /** Settings of the turn, checked by the engine's schema. */
  readonly params?: JsonObject;
  /** Tools that the client executes in this turn. */
  readonly tools?: readonly ClientToolJson[];
  readonly idempotencyKey?: string;
  readonly policy?: BusyPolicy;
  /** The id of the user's message; generated when absent. */
  readonly messageId?: string | undefined;
  /** W3C traceparent of the request. */
  readonly trace?: string;
}

/** A socket that shows who is connected, and is shown itself. */
export interface PresenceParams {
  /** The client's name for its device; the server makes one when it is absent. */
  readonly device?: string;
}

/** A socket's subscription to a conversation. */
export interface Attached {
  /** Throws not_found unless this caller may read the conversation: the token of the socket may have changed. */
  check(caller: Caller): void;
  /** The socket's outbox has drained. */
  drained(): void;
  /** Sends a heartbeat frame. */
  heartbeat(): void;
  /** The person writes, or has stopped; invalid_request for a socket that does not take part in the presence. */
  typing(on: boolean): void;
  /** Detaches. The reader stays for a grace period, in case the client reconnects. */
  close(): void;
}

/** An event with the cursor after it. */
export interface FollowedEvent extends TimelineEvent {
  readonly cursor: string;
}

/** A file whose bytes can be read. */
export interface ReadableFile extends StoredFile {
  read(range?: ByteRange): AsyncIterable<Uint8Array>;
}

/** A page request; `after` is the `next` of the previous page, or empty. */
export interface PageQuery {
  readonly after: string;
  readonly limit: number;
}

/** A page of one's own conversations. */
export interface OwnQuery extends PageQuery {
  /** Only conversations whose newest run has one of these statuses. */
  readonly status?: readonly string[] | undefined;
  /** Only conversations with these words in a message. */
  readonly q?: string | undefined;
}

/** A page of messages; `before` is that of the previous page. */
export interface MessagesQuery {
  readonly before: string | undefined;
  /** The end of the branch that is read, instead of that of the active one. */
  readonly leaf?: string | undefined;
  readonly limit: number;
}

/** A page of conversations, newest first. */
export interface ListPage<Item> {
  readonly conversations: readonly Item[];
  readonly next: string | undefined;
}

/** A conversation for an operator: owner and run status, without its content. */
export interface ListedConversation {
  readonly convId: string;
  readonly owner: string;
  readonly updatedAt: string;
  /** Empty before the first run. */
  readonly runStatus: string;
}

/** A page of a log: events as JSON, as sockets get them, and the cursor of the next page. */
export interface LogPage {
  readonly events: readonly string[];
  readonly next: string | undefined;
}

/**
 * Conversations: runs that outlive their sockets, and sockets that outlive their servers. A conversation that the caller may
 * not use, as access/ decides, does not exist for it: not_found.
 */
export interface ConversationPlane extends Service {
  readonly metrics: ConversationMetrics;
  /**
   * Takes no more runs, and leaves queued ones to other servers. Resolves when the runs under way and the streams that
   * follow a run have ended, or after `timeoutMs`: then other servers continue the runs that can be resumed.
   */
  drain(timeoutMs: number): Promise<void>;
  readonly draining: boolean;
  /** Starts or queues a run. Resolves when it is durable. An idempotency key gets the same response again. */
  chat(caller: Caller, command: ChatCommand): Promise<ChatResponseJson>;
  /** Stops the active run, on any server; with a run's id that run alone, even while it is queued. */
  stopRun(caller: Caller, convId: string, runId?: string): Promise<StopResponseJson>;
  /** The messages that wait for the active run to end. */
  queue(caller: Caller, convId: string): Promise<QueueStateJson>;
  /** Replaces the content of a queued message; run_begun once its run has begun. */
  editQueued(
    caller: Caller,
    convId: string,
    runId: string,
    edited: EditQueuedRequestJson,
  ): Promise<QueueStateJson>;
  /** Cancels a queued message; run_begun once its run has begun. */
  cancelQueued(caller: Caller, convId: string, runId: string): Promise<QueueStateJson>;
  /**
   * Decides tool calls that a run waits for; it continues, on any server, when all are decided. The same decision again gets the
   * same answer, and another one is already_decided. Returns the answer to the last one.
   */
  decideCalls(
    caller: Caller,
    convId: string,
    decisions: readonly CallDecision[],
  ): Promise<DecideToolResponseJson>;
  /** The tool calls that wait for an approval, in the conversations that the caller may read; oldest first. */
  approvals(caller: Caller): Promise<PendingApprovalJson[]>;
  /** Adds events without a run, and stores their messages. */
  post(caller: Caller, convId: string, events: readonly EventJson[]): Promise<PostEventsResponseJson>;
  /** Makes the branch through a message the active one. */
  chooseBranch(caller: Caller, convId: string, messageId: string): Promise<ChooseBranchResponseJson>;
  /** The participants, the owner first. */
  participants(caller: Caller, convId: string): Promise<ParticipantListJson>;
  /** Adds a participant, or changes its role to "member" or "viewer". */
  putParticipant(
    caller: Caller,
    convId: string,
    participant: { readonly subject: string; readonly role: string },
  ): Promise<ParticipantListJson>;
  /** Removes a participant. Its sockets and streams end. */
  removeParticipant(caller: Caller, convId: string, subject: string): Promise<ParticipantListJson>;
  /** A snapshot: the newest messages and their cursor. */
  state(caller: Caller, convId: string): Promise<ConversationStateJson>;
  /** The newest messages, or those before one. */
  messages(caller: Caller, convId: string, query: MessagesQuery): Promise<MessagePage>;
  /** The run of this id; without one the active run, or the last one. Null when there is none. */
  run(caller: Caller, convId: string, runId?: string): Promise<RunJson | null>;
  /** The caller's own conversations. */
  list(caller: Caller, query: OwnQuery): Promise<ListPage<ConversationSummaryJson>>;
  /** All conversations of an org. */
  listOfOrg(org: string, query: PageQuery): Promise<ListPage<ListedConversation>>;
  /** The runs of an org that an exception ended, newest first; or the one with an error id. */
  failedRuns(
    org: string,
    query: PageQuery & { readonly errorId: string | undefined },
  ): Promise<{ readonly runs: readonly FailedRunJson[]; readonly next: string | undefined }>;
  /** The log after a cursor, or from its oldest entry; stale_cursor when entries were trimmed. */
  log(caller: Caller, convId: string, after: string | undefined, limit: number): Promise<LogPage>;
  /** Stores a file of a conversation, which is created if it does not exist. */
  putFile(caller: Caller, convId: string, file: Omit<NewFile, "author">): Promise<StoredFileJson>;
  /** A file of a conversation that the caller may read. */
  file(caller: Caller, fileId: string): Promise<ReadableFile>;
  /** The number of this server's sockets that follow a conversation. */
  attachedTo(conversation: ConversationId): number;
  /** Deletes the conversation with its log and runs. */
  remove(caller: Caller, convId: string): Promise<void>;
  /** Erases a batch of a subject's conversations and of its part in those of others, or counts them. */
  erase(erasure: Erasure): Promise<ErasedConversations>;
  /** Attaches a socket. Creates the conversation if it does not exist. */
  attach(
    caller: Caller,
    convId: string,
    subscriber: TimelineSubscriber,
    start: StartPosition,
    presence?: PresenceParams,
  ): Promise<Attached>;
  /** Follows the events after a cursor until the signal aborts; stale_cursor when entries were trimmed. */
  follow(caller: Caller, convId: string, after: string, signal: AbortSignal): AsyncIterable<FollowedEvent>;
}
