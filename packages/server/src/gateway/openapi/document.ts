import { ERRORS, type ErrorCode } from "@khala/contracts";
import { ErrorResponseSchema } from "@khala/contracts/sync/v1";
import { ACTIONS, type Action, ISSUER, type Rule } from "../../access/actions.ts";
import type { Route } from "../http/http.ts";
import { type JsonSchema, MessageSchemas } from "./json_schema.ts";
import {
  type Content,
  type Operation,
  type Operations,
  PATH_PARAMETERS,
  type Parameter,
} from "./operation.ts";
import { BLACKBOARD_OPERATIONS } from "./operations_blackboard.ts";
import { CONVERSATION_OPERATIONS } from "./operations_conversations.ts";
import { MCP_OPERATIONS } from "./operations_mcp.ts";
import { OPS_OPERATIONS } from "./operations_ops.ts";
import { APPEND, READ_EVENTS, SYNC_OPERATIONS } from "./operations_sync.ts";

/** An OpenAPI 3.1 document, as far as we look into it. */
export interface OpenApiDocument {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, JsonSchema>>>>;
  readonly [field: string]: unknown;
}

const OPERATIONS: Operations = {
  ...SYNC_OPERATIONS,
  ...CONVERSATION_OPERATIONS,
  ...BLACKBOARD_OPERATIONS,
  ...OPS_OPERATIONS,
  ...MCP_OPERATIONS,
};

/** Codes that a route with an action may answer with, whatever it does. */
const COMMON: readonly ErrorCode[] = [
  "invalid_request",
  "missing_authorization",
  "invalid_token",
  "token_expired",
  "token_not_yet_valid",
  "missing_jti",
  "token_revoked",
  "missing_scope",
  "missing_role",
  "forbidden_topic",
  "not_found",
  "limit_exceeded",
  "internal",
  "unavailable",
  "shutting_down",
];
const OF_BODIES: readonly ErrorCode[] = ["payload_too_large", "idle_timeout"];

const INTRODUCTION = `Made from the routes of this server and its protos. 64-bit integers are strings. The sockets are described in
docs/protocol. Every error has the same shape, with a code of one table.`;

/** The OpenAPI document of a server with these routes. Routes without a description, such as pages, are left out. */
export function openApiDocument(routes: readonly Route[], version: string): OpenApiDocument {
  const schemas = new MessageSchemas();
  const errorBody = json(schemas.ref(ErrorResponseSchema));
  const paths: Record<string, Record<string, JsonSchema>> = {};
  for (const route of routes) {
    const operation = operationOf(route);
    if (!operation) continue;
    const path = route.path.replace(/:(\w+)/g, "{$1}").replace("*", "{path}");
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: describe(route, operation) };
  }
  return {
    openapi: "3.1.1",
    info: {
      title: "Khala",
      version,
      description: INTRODUCTION.replaceAll("\n", " "),
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    tags: TAGS.filter(([, , about]) => about).map(([name, , description]) => ({ name, description })),
    paths,
    components: {
      schemas: schemas.all(),
      securitySchemes: {
        bearer: {
          type: "http",
          scheme: "bearer",
          bearerFormat: "JWT",
          description:
            "Its claim `oa_sync_scopes` contains the scopes. Each route lists the scopes of which it needs one.",
        },
        issuer: { type: "http", scheme: "bearer", description: "The issuer key." },
      },
    },
  };

  function describe(route: Route, operation: Operation): JsonSchema {
    const { method, path, action } = route;
    const rule: Rule | undefined = action && ACTIONS[action];
    const { summary, description, body, bodyOptional, query = {}, headers = {} } = operation;
    const needs = action && scopesOf(action);
    const text = [description, needs && `Needs ${needs}.`].filter(Boolean).join(" ");
    return {
      operationId: operationId(method, path),
      summary,
      ...(text && { description: text }),
      tags: [TAGS.find(([, prefix]) => path.startsWith(prefix))?.[0] ?? "events"],
      ...(rule && { "x-khala-action": action, security: [{ [securityOf(rule)]: [] }] }),
      ...(!rule && { security: [] }),
      parameters: [
        ...pathParameters(path),
        ...Object.entries(query).map((each) => parameter("query", ...each)),
        ...Object.entries(headers).map((each) => parameter("header", ...each)),
      ],
      ...(body && { requestBody: { required: !bodyOptional, content: contentOf(body) } }),
      responses: { ...successes(operation), ...errors(route, operation) },
    };
  }

  function successes({ responses }: Operation): Record<string, JsonSchema> {
    return Object.fromEntries(
      Object.entries(responses).map(([status, content]) => [
        status,
        { description: DESCRIPTIONS[status] ?? "Done.", ...(content && { content: contentOf(content) }) },
      ]),
    );
  }

  /** Every error that may be answered, by its status. */
  function errors({ method, action }: Route, operation: Operation): Record<string, JsonSchema> {
    const common = action ? COMMON : (["internal"] as const);
    const codes = [...common, ...(operation.body ? OF_BODIES : []), ...(operation.errors ?? [])];
    const byStatus = Map.groupBy(new Set(codes), (code) => ERRORS[code].status);
    // HEAD has no body, whatever the answer.
    const content = method === "HEAD" ? {} : { content: errorBody };
    return Object.fromEntries(
      [...byStatus]
        .filter(([status]) => !(status in operation.responses))
        .map(([status, found]) => [
          status,
          { description: found.map((code) => `\`${code}\``).join(", "), ...content },
        ]),
    );
  }

  function contentOf(content: NonNullable<Content>): JsonSchema {
    if ("oneOf" in content) return json({ anyOf: content.oneOf.map((each) => schemas.ref(each)) });
    if ("json" in content) return json(content.json);
    if ("media" in content) return { [content.media]: { schema: { type: "string" } } };
    return json(schemas.ref(content));
  }
}

/** The description of a route; undefined without one. A test fails if such a route has an action. */
export function operationOf({ method, path, action }: Route): Operation | undefined {
  const known = OPERATIONS[`${method} ${path}`];
  if (known) return known;
  return action === "stream.append" ? APPEND : action === "stream.read" ? READ_EVENTS : undefined;
}

/** Tags with the beginning of their paths. Events have paths of the app's own. */
const TAGS: readonly (readonly [name: string, prefix: string, description: string])[] = [
  ["health", "/healthz", "Whether the server is alive and ready"],
  ["health", "/readyz", ""],
  ["health", "/metrics", ""],
  ["health", "/openapi.json", ""],
  ["tokens", "/api/sync/", "Minting and revoking"],
  ["documents", "/sync/v1/", "Documents and lists of them"],
  ["conversations", "/chat", "Messages, runs, participants"],
  ["conversations", "/files", ""],
  ["adapters", "/ai/", "For clients of the AI SDK and AG-UI"],
  ["adapters", "/ag-ui", ""],
  ["durable streams", "/streams/", "For clients of durable streams"],
  ["blackboard", "/blackboard/", "Artifacts, agents, approvals, dead letters"],
  ["model context protocol", "/mcp", "For clients of MCP, such as assistants"],
  ["model context protocol", "/.well-known/", ""],
  ["operations", "/ops/", "For operators"],
  ["events", "", "Streams of events"],
];

const DESCRIPTIONS: Readonly<Record<string, string>> = {
  201: "Stored.",
  202: "Accepted, and durable.",
  204: "Done. The response has no body.",
  206: "The requested range.",
  304: "Not changed.",
  416: "The range is outside of the file.",
};

function json(schema: JsonSchema): JsonSchema {
  return { "application/json": { schema } };
}

function scopesOf(action: Action): string {
  const { scopes, to }: Rule = ACTIONS[action];
  if (action === "mcp.use") return "a token; each tool needs the scopes of its route";
  if (scopes.includes(ISSUER)) return "the issuer key";
  const names = scopes.map((scope) => (scope.startsWith("<") ? (NAMED[scope] ?? scope) : `\`${scope}\``));
  return `the scope ${names.join(" or ")}${to === "owner" ? ", and what is asked for must be the caller's" : ""}`;
}

const NAMED: Readonly<Record<string, string>> = {
  "<topic>": "that is the topic's name",
  "<stream>": "of the stream (`runtime:write` unless the app says otherwise)",
  "<agent>": "`blackboard:work:<agent>`",
};

function securityOf({ scopes }: Rule): "issuer" | "bearer" {
  return scopes.includes(ISSUER) ? "issuer" : "bearer";
}

function parameter(place: "query" | "header", name: string, { description, schema, required }: Parameter) {
  return { name, in: place, description, ...(required && { required }), schema };
}

function pathParameters(path: string): JsonSchema[] {
  const names = [...path.matchAll(/:(\w+)|\*/g)].map(([, name = "path"]) => name);
  return names.map((name) => ({
    name,
    in: "path",
    required: true,
    description: PATH_PARAMETERS[name] ?? "",
    schema: { type: "string" },
  }));
}

/** `GET /chat/:conv_id/messages` becomes `get_chat_conv_id_messages`. */
function operationId(method: string, path: string): string {
  const words = path.replace("*", "path").split(/\W+/).filter(Boolean);
  return [method.toLowerCase(), ...words].join("_");
}
