import { AppendRequestSchema, AppendResponseSchema, EventListSchema } from "@khala/contracts/runtime/v1";
import {
  DocumentListSchema,
  DocumentSchema,
  TokenRequestSchema,
  TokenResponseSchema,
} from "@khala/contracts/sync/v1";
import { LIMIT, type Operation, type Operations, PAGED, text } from "./operation.ts";

const TRACE = { traceparent: text("W3C trace context, continued through to the push.") };

/** Appending to a stream. Every kind of stream has the same. */
export const APPEND: Operation = {
  summary: "Appends events to a stream",
  description: "Appends all events or none. A repeated request gets the answer of the first one.",
  headers: TRACE,
  body: AppendRequestSchema,
  responses: { 201: AppendResponseSchema },
  errors: ["unknown_event_type", "sequence_conflict", "event_conflict", "stream_closed"],
};

/** Reading the events of a stream. */
export const READ_EVENTS: Operation = {
  summary: "Reads the events of a stream, oldest first",
  query: { after: text("The page begins after this sequence.", { pattern: "^[0-9]+$" }), limit: LIMIT },
  responses: { 200: EventListSchema },
};

/** Health, tokens and documents. */
export const SYNC_OPERATIONS: Operations = {
  "GET /healthz": {
    summary: "Reports whether the process answers",
    responses: { 200: { json: { type: "object", properties: { status: { const: "ok" } } } } },
  },
  "GET /readyz": {
    summary: "Reports the state of every dependency",
    description: "Degraded is 200: the server still serves.",
    responses: { 200: { json: readiness() }, 503: { json: readiness() } },
  },
  "GET /metrics": { summary: "Metrics as Prometheus text", responses: { 200: { media: "text/plain" } } },
  "GET /openapi.json": {
    summary: "This document",
    responses: { 200: { json: { type: "object", additionalProperties: true } } },
  },
  "POST /api/sync/token": {
    summary: "Mints a token",
    description:
      "Needs the issuer key. A development server also mints tokens for programs on the same machine.",
    body: TokenRequestSchema,
    responses: { 200: TokenResponseSchema },
    errors: ["origin_not_allowed"],
  },
  "POST /api/sync/revoke": {
    summary: "Revokes a token, a subject or an org",
    body: {
      json: {
        type: "object",
        properties: {
          jti: { type: "string", description: "One token." },
          sub: { type: "string", description: "Every token of a subject." },
          org_id: { type: "string", description: "Every token of an org." },
        },
      },
    },
    responses: { 204: null },
  },
  "GET /sync/v1/doc/:doc_key": {
    summary: "Reads one document",
    headers: { "if-none-match": text("The ETag of the client's copy.") },
    responses: { 200: DocumentSchema, 304: null },
  },
  "GET /sync/v1/list/:collection": {
    summary: "Lists the documents of a topic, with the cursor of this state",
    description:
      "The model of the topic declares the fields. `filter.<field>` selects documents by a value; `<field>` lists one part of the topic.",
    query: {
      ...PAGED,
      order: text("A declared order, such as `title`, or `-title` for the highest first. Default: by key."),
      doc_key: text("Only this document."),
    },
    responses: { 200: DocumentListSchema },
  },
};

function readiness() {
  const state = { type: "string", enum: ["ok", "degraded", "unavailable"] };
  const dependency = {
    type: "object",
    properties: { state, message: { type: "string" } },
    additionalProperties: true,
  };
  return {
    type: "object",
    properties: { status: state, dependencies: { type: "object", additionalProperties: dependency } },
  };
}
