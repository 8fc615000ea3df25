import {
  AboutSchema,
  AppSchema,
  AuditListSchema,
  DocumentHistorySchema,
  DocumentListSchema,
  EraseRequestSchema,
  EraseResponseSchema,
  ErrorListSchema,
  FailedRunListSchema,
  FailedStreamListSchema,
  OrgConversationListSchema,
  OverviewHistorySchema,
  OverviewSchema,
  ParitySchema,
  QuotaListSchema,
  SetAsideListSchema,
  SettingListSchema,
  SocketListSchema,
  TopicListSchema,
  TraceListSchema,
  TraceSchema,
} from "@khala/contracts/ops/v1";
import { LIMIT, type Operations, PAGED, text } from "./operation.ts";

/** The operations for operators. */
export const OPS_OPERATIONS: Operations = {
  "GET /ops/v1/about": {
    summary: "Describes this server",
    responses: { 200: AboutSchema },
    errors: ["invalid_request"],
  },
  "GET /ops/v1/overview": { summary: "Returns the state of the server", responses: { 200: OverviewSchema } },
  "GET /ops/v1/overview/history": {
    summary: "Returns the load of the last hour",
    responses: { 200: OverviewHistorySchema },
  },
  "GET /ops/v1/app": {
    summary: "Describes the topics, streams and agents of this server, with example requests",
    responses: { 200: AppSchema },
  },
  "GET /ops/v1/topics": {
    summary: "Lists topics with journal, documents and projection",
    responses: { 200: TopicListSchema },
  },
  "GET /ops/v1/failed-streams": {
    summary: "Lists the streams that a projection has set aside",
    query: PAGED,
    responses: { 200: FailedStreamListSchema },
  },
  "GET /ops/v1/documents": {
    summary: "Finds documents by a part of their key or content",
    query: {
      topic: { ...text("Whose documents."), required: true },
      search: text("A part of the key or of the content."),
      ...PAGED,
    },
    responses: { 200: DocumentListSchema },
  },
  "GET /ops/v1/history/:doc_key": {
    summary: "Lists the versions of a document, newest first",
    query: { limit: LIMIT },
    responses: { 200: DocumentHistorySchema },
  },
  "GET /ops/v1/sockets": { summary: "Lists the sockets of the org", responses: { 200: SocketListSchema } },
  "GET /ops/v1/conversations": {
    summary: "Lists conversations of the org, without their messages",
    query: PAGED,
    responses: { 200: OrgConversationListSchema },
  },
  "GET /ops/v1/failed-runs": {
    summary: "Lists exceptions that ended runs of the org",
    query: { ...PAGED, error_id: text("The error id that a user was shown.") },
    responses: { 200: FailedRunListSchema },
  },
  "GET /ops/v1/parity": { summary: "Returns how far the mirror is behind", responses: { 200: ParitySchema } },
  "POST /ops/v1/parity": {
    summary: "Compares the mirror with the documents",
    body: { json: { type: "object", additionalProperties: true } },
    bodyOptional: true,
    responses: { 200: ParitySchema },
  },
  "GET /ops/v1/errors": {
    summary: "Counts errors by code since the start",
    responses: { 200: ErrorListSchema },
  },
  "GET /ops/v1/audit": {
    summary: "Lists the audit log of the org, newest first",
    query: {
      ...PAGED,
      action: text("The action, such as `dead_letter.replay`."),
      subject: text("The subject who did it."),
    },
    responses: { 200: AuditListSchema },
  },
  "GET /ops/v1/set-aside": {
    summary: "Lists the items that the board set aside, oldest first",
    query: PAGED,
    responses: { 200: SetAsideListSchema },
  },
  "POST /ops/v1/set-aside/:id/retry": {
    summary: "Retries the item",
    body: { json: { type: "object", additionalProperties: true } },
    bodyOptional: true,
    responses: { 204: null },
  },
  "DELETE /ops/v1/set-aside/:id": { summary: "Discards it", responses: { 204: null } },
  "POST /ops/v1/erase": {
    summary: "Counts or erases the data of a subject, one step at a time",
    body: EraseRequestSchema,
    responses: { 200: EraseResponseSchema },
  },
  "GET /ops/v1/quotas": {
    summary: "Returns how much of its quotas an org uses",
    query: { org: text("The org. With `platform`, leave it out to get all orgs.") },
    responses: { 200: QuotaListSchema },
  },
  "GET /ops/v1/traces": {
    summary: "Lists the last traces, newest first; in development",
    query: { limit: LIMIT, correlation_id: text("Only those of this correlation.") },
    responses: { 200: TraceListSchema },
  },
  "GET /ops/v1/traces/:trace_id": { summary: "Reads the spans of a trace", responses: { 200: TraceSchema } },
  "GET /ops/v1/config": {
    summary: "Lists every setting; secrets are masked",
    responses: { 200: SettingListSchema },
  },
};
