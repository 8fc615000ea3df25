import type { Operations, Parameter } from "./operation.ts";
import { text } from "./operation.ts";

const ANY_JSON = { json: { type: ["object", "array"] } };
const HEADERS: Readonly<Record<string, Parameter>> = {
  "mcp-session-id": text("The session, as the answer to `initialize` named it."),
  "mcp-protocol-version": text("The negotiated protocol version."),
};

/** The Model Context Protocol, whose messages are JSON-RPC. */
export const MCP_OPERATIONS: Operations = {
  "POST /mcp": {
    summary: "Receives a message of the Model Context Protocol",
    headers: HEADERS,
    body: ANY_JSON,
    responses: { 200: ANY_JSON, 202: null, 400: ANY_JSON },
    errors: ["origin_not_allowed"],
  },
  "GET /mcp": {
    summary: "Streams the notifications of an MCP session",
    headers: HEADERS,
    responses: { 200: { media: "text/event-stream" } },
    errors: ["origin_not_allowed"],
  },
  "DELETE /mcp": {
    summary: "Ends an MCP session",
    headers: HEADERS,
    responses: { 200: null },
    errors: ["origin_not_allowed"],
  },
  "GET /.well-known/oauth-protected-resource": metadata("Describes how clients of `/mcp` get tokens"),
  "GET /.well-known/oauth-protected-resource/mcp": metadata("The same, at the path of RFC 9728"),
};

function metadata(summary: string) {
  const schema = {
    type: "object",
    properties: {
      resource: { type: "string" },
      resource_name: { type: "string" },
      bearer_methods_supported: { type: "array", items: { type: "string" } },
      authorization_servers: { type: "array", items: { type: "string" } },
    },
    required: ["resource"],
  };
  return { summary, responses: { 200: { json: schema } } };
}
