import {
  ApprovalInboxSchema,
  ChatRequestSchema,
  ChatResponseSchema,
  ChooseBranchRequestSchema,
  ChooseBranchResponseSchema,
  ConversationListSchema,
  ConversationStateSchema,
  DecideToolRequestSchema,
  DecideToolResponseSchema,
  EditQueuedRequestSchema,
  LogPageSchema,
  ParticipantListSchema,
  PostEventsRequestSchema,
  PostEventsResponseSchema,
  QueueStateSchema,
  StopRequestSchema,
  StopResponseSchema,
  StoredFileSchema,
  UiMessagePageSchema,
} from "@khala/contracts/conversation/v1";
import { LIMIT, type Operations, PAGED, text } from "./operation.ts";

const POLICY = text("What to do while a run is active.", { enum: ["reject", "queue", "interrupt"] });
const RUN_ID = text("The id of the run. Default: the active run.");
const ANY_JSON = { json: { type: "object", additionalProperties: true } };
const SSE = { media: "text/event-stream" };
const BYTES = { media: "application/octet-stream" };
const SENDING = ["conversation_busy", "idempotency_conflict", "overloaded"] as const;
const OFFSET = text("Where to read from: an offset of the stream, `-1` for its beginning, or `now`.");
const LIVE = text("Waits for new data.", { enum: ["long-poll", "sse"] });

/** Conversations, their files, the adapters for clients of others, and durable streams. */
export const CONVERSATION_OPERATIONS: Operations = {
  "POST /chat": {
    summary: "Sends a message to a conversation, which starts a run",
    headers: {
      "idempotency-key": text(
        "A repeated request with the same key gets the same answer and starts no second run.",
      ),
    },
    body: ChatRequestSchema,
    responses: { 202: ChatResponseSchema },
    errors: SENDING,
  },
  "GET /chat": {
    summary: "Lists the conversations that the caller owns or takes part in, newest first",
    query: {
      ...PAGED,
      status: text(
        "Statuses of the newest run, separated by commas: running, waiting, finished, failed, stopped.",
      ),
      q: text("Words of a message, or the beginnings of words."),
    },
    responses: { 200: ConversationListSchema },
  },
  "GET /chat/:conv_id": {
    summary: "Reads a conversation: its newest messages, its run, and its cursor",
    responses: { 200: ConversationStateSchema },
  },
  "GET /chat/:conv_id/messages": {
    summary: "Reads a page of messages, as the AI SDK's `UIMessage`",
    query: {
      before: text("The `before` of the previous page."),
      leaf: text("The last message of the branch to read. Default: the active branch."),
      limit: LIMIT,
    },
    responses: { 200: UiMessagePageSchema },
  },
  "GET /chat/:conv_id/log": {
    summary: "Reads the entries of a conversation's log, oldest first",
    query: { ...PAGED, after: text("A cursor of the conversation.") },
    responses: { 200: LogPageSchema },
    errors: ["stale_cursor"],
  },
  "POST /chat/:conv_id/stop": {
    summary: "Stops the run",
    query: { run_id: RUN_ID },
    body: StopRequestSchema,
    bodyOptional: true,
    responses: { 200: StopResponseSchema },
  },
  "POST /chat/:conv_id/branch": {
    summary: "Switches to another branch",
    body: ChooseBranchRequestSchema,
    responses: { 200: ChooseBranchResponseSchema },
    errors: ["conversation_busy"],
  },
  "POST /chat/:conv_id/tools/:call_id": {
    summary: "Decides a tool call that the run waits for: approves it, denies it, or sends its output",
    body: DecideToolRequestSchema,
    responses: { 200: DecideToolResponseSchema },
    errors: ["already_decided"],
  },
  "GET /approvals": {
    summary: "Lists the pending approvals of conversations and the board, oldest first",
    responses: { 200: ApprovalInboxSchema },
  },
  "POST /chat/:conv_id/events": {
    summary: "Adds events without a run",
    body: PostEventsRequestSchema,
    responses: { 201: PostEventsResponseSchema },
    errors: ["conversation_busy"],
  },
  "DELETE /chat/:conv_id": {
    summary: "Removes a conversation, with its files",
    responses: { 204: null },
    errors: ["conversation_busy"],
  },
  "GET /chat/:conv_id/queue": {
    summary: "Lists the queued messages",
    responses: { 200: QueueStateSchema },
  },
  "PATCH /chat/:conv_id/queue/:run_id": {
    summary: "Edits a queued message",
    body: EditQueuedRequestSchema,
    responses: { 200: QueueStateSchema },
    errors: ["run_begun"],
  },
  "DELETE /chat/:conv_id/queue/:run_id": {
    summary: "Cancels a queued message",
    responses: { 200: QueueStateSchema },
    errors: ["run_begun"],
  },
  "GET /chat/:conv_id/participants": {
    summary: "Lists the participants, the owner first",
    responses: { 200: ParticipantListSchema },
  },
  "PUT /chat/:conv_id/participants/:subject": {
    summary: "Adds a participant, or changes its role",
    body: {
      json: {
        type: "object",
        properties: { role: { type: "string", enum: ["member", "viewer"] } },
        required: ["role"],
      },
    },
    responses: { 200: ParticipantListSchema },
    errors: ["conversation_busy"],
  },
  "DELETE /chat/:conv_id/participants/:subject": {
    summary: "Removes a participant",
    responses: { 200: ParticipantListSchema },
    errors: ["conversation_busy"],
  },
  "POST /files": {
    summary: "Stores a file of a conversation",
    query: {
      conv_id: { ...text("The conversation that the file belongs to."), required: true },
      name: text("Its name."),
    },
    body: { media: "*/*" },
    responses: { 201: StoredFileSchema },
    errors: ["payload_too_large"],
  },
  "GET /files/:file_id": {
    summary: "Reads a file, or a range of it",
    headers: { range: text("One range of bytes.") },
    responses: { 200: { media: "*/*" }, 206: { media: "*/*" }, 304: null, 416: ANY_JSON },
  },
  "HEAD /files/:file_id": {
    summary: "Reads the headers of a file",
    responses: { 200: null, 206: null, 304: null, 416: null },
  },

  "POST /ai/chat": {
    summary: "Sends and streams, for `DefaultChatTransport` of the AI SDK",
    query: { policy: POLICY },
    body: ANY_JSON,
    responses: { 200: SSE },
    errors: SENDING,
  },
  "GET /ai/chat/:id/stream": {
    summary: "Resumes the stream of the active run",
    responses: { 200: SSE, 204: null },
  },
  "POST /ai/chat/:id/stop": {
    summary: "Stops the run",
    query: { run_id: RUN_ID },
    body: ANY_JSON,
    bodyOptional: true,
    responses: { 200: StopResponseSchema },
  },
  "DELETE /ai/chat/:id/stop": {
    summary: "Stops the run, for clients that cannot POST",
    query: { run_id: RUN_ID },
    responses: { 200: StopResponseSchema },
  },
  "POST /ag-ui": {
    summary: "Runs an agent, for `HttpAgent` of AG-UI",
    query: { policy: POLICY },
    body: ANY_JSON,
    responses: { 200: SSE },
    errors: SENDING,
  },

  "PUT /streams/*": {
    summary: "Creates a durable stream, or forks one",
    body: BYTES,
    bodyOptional: true,
    responses: { 200: null, 201: null },
    errors: ["stream_conflict"],
  },
  "POST /streams/*": {
    summary: "Appends to a durable stream, or closes it",
    body: BYTES,
    bodyOptional: true,
    responses: { 200: null, 204: null },
    errors: ["stream_conflict", "stream_closed", "stream_gone", "stale_producer", "sequence_conflict"],
  },
  "GET /streams/*": {
    summary: "Reads a durable stream, also live",
    query: { offset: OFFSET, live: LIVE, cursor: text("The `Stream-Cursor` of the previous answer.") },
    responses: { 200: { media: "*/*" }, 204: null, 304: null },
    errors: ["stale_cursor", "stream_gone"],
  },
  "HEAD /streams/*": {
    summary: "Reads the headers of a durable stream",
    responses: { 200: null },
    errors: ["stream_gone"],
  },
  "DELETE /streams/*": {
    summary: "Removes a durable stream",
    responses: { 204: null },
    errors: ["stream_gone"],
  },
};
