import type { DescMessage } from "@bufbuild/protobuf";
import type { ErrorCode } from "@khala/contracts";
import type { JsonSchema } from "./json_schema.ts";

/** The content of a body: a proto message in JSON or one of several, another JSON, bytes of some media type, or nothing. */
export type Content =
  | DescMessage
  | { readonly oneOf: readonly DescMessage[] }
  | { readonly json: JsonSchema }
  | { readonly media: string }
  | null;

/** The description of a route, beside its method, path and action. */
export interface Operation {
  readonly summary: string;
  readonly description?: string;
  /** Parameters of the query, by name. */
  readonly query?: Readonly<Record<string, Parameter>>;
  readonly headers?: Readonly<Record<string, Parameter>>;
  readonly body?: Content;
  /** Whether a request without a body is accepted too. */
  readonly bodyOptional?: true;
  /** The content of a successful response, by status. */
  readonly responses: Readonly<Record<number, Content>>;
  /** Codes that the route may answer with, beside those that every route may. */
  readonly errors?: readonly ErrorCode[];
}

/** A parameter of a query or a header. */
export interface Parameter {
  readonly description: string;
  readonly schema: JsonSchema;
  readonly required?: true;
}

/** Operations by "METHOD path". */
export type Operations = Readonly<Record<string, Operation>>;

/** A text as a parameter. */
export function text(description: string, more: JsonSchema = {}): Parameter {
  return { description, schema: { type: "string", ...more } };
}

/** How many items a page has. */
export const LIMIT: Parameter = {
  description: "The maximum number of items on a page.",
  schema: { type: "integer", minimum: 1, maximum: 1000, default: 100 },
};

/** The parameters of a route that answers in pages. */
export const PAGED = {
  limit: LIMIT,
  after: text("Where the page begins: the unchanged `next` of the previous page."),
};

/** Parameters of paths, by name. */
export const PATH_PARAMETERS: Readonly<Record<string, string>> = {
  agent: "The name of an agent.",
  call_id: "The id of a tool call.",
  claim_id: "The id of a claim.",
  collection: "The name of a topic.",
  conv_id: "The id of a conversation.",
  correlation_id: "The id of a correlation.",
  doc_key: "The key of a document, such as `run:r1`.",
  file_id: "The id of a file.",
  id: "The id of the resource.",
  path: "The path of a durable stream.",
  run_id: "The id of a run.",
  subject: "The subject of a token: a person or a program.",
  topic: "The name of a topic.",
  trace_id: "The id of a trace, 32 hex digits.",
};
