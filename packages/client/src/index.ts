export { type ErrorCode, KhalaError } from "@khala/contracts";
export { stopOnAbort } from "./adapters/stop_on_abort.ts";
export type { AppTypes, BoardTopics, TopicsOf } from "./app_types.ts";
export type { ApprovalDecision, Approvals, ApprovalsState } from "./board/approvals.ts";
export type { ArtifactFilter, Board, DeadLetterFilter } from "./board/board.ts";
export type { CorrelationWatch } from "./board/correlation_watch.ts";
export { browserEnvironment } from "./browser_environment.ts";
export { type ClientOptions, type ConnectionView, createClient, type KhalaClient } from "./client.ts";
export type { ConnectionState, ConnectionStatus } from "./connection/port.ts";
export type { TokenSource } from "./connection/tokens.ts";
export { type Branches, branchesOf } from "./conversation/branches.ts";
export type {
  Conversation,
  ConversationFilter,
  Conversations,
  PageOptions,
} from "./conversation/conversations.ts";
export type { ConversationHealth, ConversationView } from "./conversation/live_conversation.ts";
export type { OutgoingMessage, RegenerateOptions, SendOptions } from "./conversation/outbox.ts";
export { EMPTY, type RunOutcome, reduce, type Transcript } from "./conversation/transcript.ts";
export type { Environment, Signal, SocketLike } from "./environment.ts";
export { type Feed, openFeed, type TopicSink, type Update } from "./feed.ts";
export type { Log, LogEvent } from "./log.ts";
export type { LiveOverview, OverviewSnapshot } from "./ops/live_overview.ts";
export type { DocumentFilter, Ops } from "./ops/ops.ts";
export { memory } from "./storage/memory.ts";
export type { Cursor, Storage, StoredDocument, StoredTopic, TopicChange } from "./storage/storage.ts";
export type {
  AnyAppends,
  AppendedEvent,
  AppendOptions,
  Appends,
  EventPage,
  PendingAppend,
  StreamEvent,
} from "./sync/appends/appends_port.ts";
export { partOf } from "./sync/lists.ts";
export type {
  DocumentOf,
  Item,
  ListOptions,
  ListSnapshot,
  Snapshot,
  Sync,
  Topics,
  Where,
} from "./sync/plane_port.ts";
export type { TopicPhase } from "./sync/source.ts";
