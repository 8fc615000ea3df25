import {
  AgentListSchema,
  ApprovalDecisionSchema,
  ApprovalListSchema,
  ArtifactDraftSchema,
  ArtifactListSchema,
  ArtifactSchema,
  ClaimRequestSchema,
  ClaimResponseSchema,
  CorrelationStateSchema,
  DeadLetterListSchema,
  DeadLetterSchema,
  HeartbeatResponseSchema,
  LagResponseSchema,
  PublishRequestSchema,
  PublishResponseSchema,
  ReplayAllRequestSchema,
  ReplayAllResponseSchema,
  ReplayRequestSchema,
  ReplayResponseSchema,
  SettleRequestSchema,
  SettleResponseSchema,
} from "@khala/contracts/blackboard/v1";
import { PostEventsRequestSchema } from "@khala/contracts/conversation/v1";
import { LIMIT, type Operation, type Operations, PAGED, text } from "./operation.ts";

const CORRELATION = text("Only those of this correlation.");
const ANY_JSON = { json: { type: "object", additionalProperties: true } };

/** The blackboard. */
export const BLACKBOARD_OPERATIONS: Operations = {
  "POST /blackboard/v1/artifacts": {
    summary: "Publishes one artifact, or up to 1,000",
    description: "Publishes all of them or none.",
    headers: { traceparent: text("W3C trace context; agents that work on it continue it.") },
    body: { oneOf: [ArtifactDraftSchema, PublishRequestSchema] },
    responses: { 201: PublishResponseSchema },
    errors: ["artifact_conflict", "overloaded"],
  },
  "GET /blackboard/v1/artifacts": {
    summary: "Lists the recent artifacts, newest first",
    query: { limit: LIMIT, type: text("Only those of this type."), correlation_id: CORRELATION },
    responses: { 200: ArtifactListSchema },
  },
  "GET /blackboard/v1/artifacts/:id": {
    summary: "Reads the latest version of an artifact",
    query: { org_id: text("The org of a public artifact of another org.") },
    responses: { 200: ArtifactSchema },
  },
  "GET /blackboard/v1/agents": {
    summary: "Lists the agents with the types they consume and their state",
    responses: { 200: AgentListSchema },
  },
  "GET /blackboard/v1/lag": {
    summary: "Returns how far readers are behind, by partition",
    responses: { 200: LagResponseSchema },
  },
  "POST /blackboard/v1/agents/:agent/pause": control("Pauses an agent on all servers"),
  "POST /blackboard/v1/agents/:agent/resume": control("Resumes an agent"),
  "POST /blackboard/v1/agents/:agent/cancel": control("Cancels the queued tasks of an agent"),
  "GET /blackboard/v1/correlations/:correlation_id": {
    summary: "Returns the state of a correlation",
    responses: { 200: CorrelationStateSchema },
  },
  "POST /blackboard/v1/correlations/:correlation_id/pause": control("Pauses a correlation"),
  "POST /blackboard/v1/correlations/:correlation_id/cancel": control("Cancels a correlation"),
  "POST /blackboard/v1/correlations/:correlation_id/resume": {
    ...control("Resumes a paused correlation, or lifts a cancellation and replays its dead letters"),
    responses: {
      202: {
        json: { type: "object", properties: { replayed: { type: "integer" } }, required: ["replayed"] },
      },
    },
  },
  "GET /blackboard/v1/approvals": {
    summary: "Lists the tasks that wait for an approval",
    responses: { 200: ApprovalListSchema },
  },
  "POST /blackboard/v1/approvals/:id": {
    summary: "Approves or refuses a task",
    body: ApprovalDecisionSchema,
    responses: { 204: null },
    errors: ["already_decided"],
  },
  "GET /blackboard/v1/dead-letters/:agent": {
    summary: "Lists the dead letters of an agent, newest first",
    query: { ...PAGED, correlation_id: CORRELATION },
    responses: { 200: DeadLetterListSchema },
  },
  "GET /blackboard/v1/dead-letters/:agent/:id": {
    summary: "Reads a dead letter",
    responses: { 200: DeadLetterSchema },
  },
  "POST /blackboard/v1/dead-letters/:agent/:id/replay": {
    summary: "Replays a dead letter once",
    body: ReplayRequestSchema,
    bodyOptional: true,
    responses: { 202: ReplayResponseSchema },
  },
  "POST /blackboard/v1/dead-letters/:agent/replay": {
    summary: "Replays several dead letters, or all",
    body: ReplayAllRequestSchema,
    bodyOptional: true,
    responses: { 202: ReplayAllResponseSchema },
  },
  "POST /blackboard/v1/agents/:agent/claim": {
    summary: "Claims tasks of an agent, for workers in other languages",
    body: ClaimRequestSchema,
    responses: { 200: ClaimResponseSchema },
  },
  "POST /blackboard/v1/claims/:claim_id/heartbeat": {
    summary: "Extends the lease of a claim",
    body: ANY_JSON,
    bodyOptional: true,
    responses: { 200: HeartbeatResponseSchema },
    errors: ["lease_lost"],
  },
  "POST /blackboard/v1/claims/:claim_id/events": {
    summary: "Posts to the conversation that the task belongs to",
    body: PostEventsRequestSchema,
    responses: { 204: null },
    errors: ["lease_lost", "conversation_busy"],
  },
  "POST /blackboard/v1/claims/:claim_id/settle": {
    summary: "Settles a claim with outputs or a failure",
    body: SettleRequestSchema,
    bodyOptional: true,
    responses: { 200: SettleResponseSchema },
    errors: ["lease_lost"],
  },
};

function control(summary: string): Operation {
  return { summary, body: ANY_JSON, bodyOptional: true, responses: { 204: null } };
}
