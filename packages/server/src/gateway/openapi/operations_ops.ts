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
    summary: "What runs here",
    responses: { 200: AboutSchema },
    errors: ["invalid_request"],
  },
  "GET /ops/v1/overview": { summary: "How the server is", responses: { 200: OverviewSchema } },
  "GET /ops/v1/overview/history": {
    summary: "The load of the last hour",
    responses: { 200: OverviewHistorySchema },
  },
  "GET /ops/v1/app": {
    summary: "What this server serves, with requests to try",
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
    summary: "Lists conversations of the org, without what is said",
    query: PAGED,
    responses: { 200: OrgConversationListSchema },
  },
  "GET /ops/v1/failed-runs": {
    summary: "Lists exceptions that ended runs of the org",
    query: { ...PAGED, error_id: text("The one that an end user was shown.") },
    responses: { 200: FailedRunListSchema },
  },
  "GET /ops/v1/parity": { summary: "How far the mirror has come", responses: { 200: ParitySchema } },
  "POST /ops/v1/parity": {
    summary: "Compares the mirror with the read models",
    body: { json: { type: "object", additionalProperties: true } },
    bodyOptional: true,
    responses: { 200: ParitySchema },
  },
  "GET /ops/v1/errors": {
    summary: "Counts errors by code since the start",
    responses: { 200: ErrorListSchema },
  },
  "GET /ops/v1/audit": {
    summary: "Lists who did what in the org, newest first",
    query: { ...PAGED, action: text("Such as `dead_letter.replay`."), subject: text("Who did it.") },
    responses: { 200: AuditListSchema },
  },
  "GET /ops/v1/set-aside": {
    summary: "Lists what the board could not process, oldest first",
    query: PAGED,
    responses: { 200: SetAsideListSchema },
  },
  "POST /ops/v1/set-aside/:id/retry": {
    summary: "Processes it again",
    body: { json: { type: "object", additionalProperties: true } },
    bodyOptional: true,
    responses: { 204: null },
  },
  "DELETE /ops/v1/set-aside/:id": { summary: "Discards it", responses: { 204: null } },
  "POST /ops/v1/erase": {
    summary: "Counts or erases what a subject left, one step at a time",
    body: EraseRequestSchema,
    responses: { 200: EraseResponseSchema },
  },
  "GET /ops/v1/quotas": {
    summary: "What an org uses of its quotas",
    query: { org: text("Whose; with `platform`, without it, those of all orgs.") },
    responses: { 200: QuotaListSchema },
  },
  "GET /ops/v1/traces": {
    summary: "Lists the last traces, newest first; in development",
    query: { limit: LIMIT, correlation_id: text("Those of one correlation.") },
    responses: { 200: TraceListSchema },
  },
  "GET /ops/v1/traces/:trace_id": { summary: "Reads the spans of a trace", responses: { 200: TraceSchema } },
  "GET /ops/v1/config": {
    summary: "Lists every setting; secrets are masked",
    responses: { 200: SettingListSchema },
  },
};
