import type { ConversationListJson } from "@khala/contracts/conversation/v1";
import { hasScopeFor } from "../../access/access.ts";
import type { Models } from "../../sync/model.ts";
import type { Api, ApiResponse, McpCaller } from "./caller.ts";

/** The resource that a URI names. */
export type McpResource =
  | { readonly kind: "topic"; readonly topic: string }
  | { readonly kind: "document"; readonly docKey: string }
  | { readonly kind: "conversation"; readonly convId: string };

/** A resource in a list. */
export interface ListedResource {
  readonly uri: string;
  readonly name: string;
  readonly title?: string;
  readonly mimeType: string;
}

const JSON_TYPE = "application/json";
const LISTED_CONVERSATIONS = 100;

/** URIs that clients may fill in. */
export const RESOURCE_TEMPLATES = [
  {
    uriTemplate: "khala://topics/{topic}",
    name: "topic",
    description: "The documents of a topic: the first hundred, by key.",
    mimeType: JSON_TYPE,
  },
  {
    uriTemplate: "khala://documents/{doc_key}",
    name: "document",
    description: "One document, such as khala://documents/run%3Ar1.",
    mimeType: JSON_TYPE,
  },
  {
    uriTemplate: "khala://conversations/{conv_id}",
    name: "conversation",
    description: "A conversation: its newest messages and its run.",
    mimeType: JSON_TYPE,
  },
];

const KINDS = { topics: "topic", documents: "document", conversations: "conversation" } as const;

/** Reads a URI; undefined for one that names nothing here. */
export function readUri(uri: string): McpResource | undefined {
  const [, kind, encoded] = /^khala:\/\/(topics|documents|conversations)\/([^/?#]{1,2000})$/.exec(uri) ?? [];
  if (!kind || !encoded) return undefined;
  let name: string;
  try {
    name = decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
  switch (KINDS[kind as keyof typeof KINDS]) {
    case "topic":
      return { kind: "topic", topic: name };
    case "document":
      return { kind: "document", docKey: name };
    case "conversation":
      return { kind: "conversation", convId: name };
  }
}

/** Reads a resource as its route does. */
export function readResource(api: Api, caller: McpCaller, resource: McpResource): Promise<ApiResponse> {
  return api(caller, { method: "GET", path: pathOf(resource) });
}

function pathOf(resource: McpResource): string {
  switch (resource.kind) {
    case "topic":
      return `/sync/v1/list/${encodeURIComponent(resource.topic)}`;
    case "document":
      return `/sync/v1/doc/${encodeURIComponent(resource.docKey)}`;
    case "conversation":
      return `/chat/${encodeURIComponent(resource.convId)}`;
  }
}

/** The topics that the caller may read, and its newest conversations. */
export async function listResources(api: Api, models: Models, caller: McpCaller): Promise<ListedResource[]> {
  const topics = models.all
    .map(({ topic }) => topic)
    .filter((topic) => hasScopeFor(caller.viewer, "document.read", { topic }))
    .map((topic) => ({
      uri: `khala://topics/${encodeURIComponent(topic)}`,
      name: topic,
      mimeType: JSON_TYPE,
    }));
  return [...topics, ...(await conversations(api, caller))];
}

async function conversations(api: Api, caller: McpCaller): Promise<ListedResource[]> {
  if (!hasScopeFor(caller.viewer, "conversation.read")) return [];
  const answer = await api(caller, { method: "GET", path: `/chat?limit=${LISTED_CONVERSATIONS}` });
  if (answer.status !== 200) return [];
  const { conversations = [] } = answer.body as ConversationListJson;
  return conversations.map(({ conv_id = "", title }) => ({
    uri: `khala://conversations/${encodeURIComponent(conv_id)}`,
    name: conv_id,
    ...(title && { title }),
    mimeType: JSON_TYPE,
  }));
}
