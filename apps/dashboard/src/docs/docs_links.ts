import { links } from "../router.ts";

/** Names that are not written as their file is. Guides have the name of their heading. */
const TITLES: Readonly<Record<string, string>> = {
  "guides/agent_patterns.md": "Joins, batches, approvals and schedules",
  "guides/appending_events.md": "Appending events from a client",
  "guides/command_line.md": "The server by hand",
  "guides/feeds.md": "Changes as a feed",
  "guides/mcp.md": "Assistants and models: MCP",
  "guides/offline.md": "Offline start, storage and tabs",
  "guides/openapi.md": "Clients in other languages",
  "guides/other_languages.md": "Engines in other languages",
  "guides/protobuf_events.md": "Events in protobuf",
  "guides/real_model.md": "Chat with a real model",
  "guides/screens.md": "Conversations and agents on a screen",
  "guides/testing.md": "Test an app",
  "guides/tools.md": "Tools and MCP",
  "protocol/OA_SYNC_WS_MAPPING.md": "Sync",
  "protocol/OPS.md": "Operations",
  "protocol/blackboard/kafka.md": "Blackboard: Kafka",
  "protocol/blackboard/kafka_rights.md": "Blackboard: rights on Kafka",
  "protocol/http/mcp.md": "HTTP: MCP",
  "protocol/sync/postgresql.md": "Sync: PostgreSQL",
  "runbooks/MOVE_TO_KAFKA.md": "Move to Kafka",
  "runbooks/MOVE_TO_REDIS.md": "Move to Redis",
  "runbooks/POSTGRES_FAILOVER.md": "PostgreSQL failover",
  "runbooks/REDIS_FAILOVER.md": "Redis failover",
  "runbooks/REDIS_MEMORY.md": "Redis memory",
};

/** The names of the folders of the protocol, which are those of the pages above them. */
const AREAS: Readonly<Record<string, string>> = {
  blackboard: "Blackboard",
  conversations: "Conversations",
  http: "HTTP",
  ops: "Operations",
  sync: "Sync",
};

/** The name of a page of the documentation: "GETTING_STARTED.md" is "Getting started". */
export function titleOf(page: string): string {
  const title = TITLES[page];
  if (title !== undefined) return title;
  const name = page.slice(page.lastIndexOf("/") + 1).replace(/\.md$/, "");
  const [, area] = /^protocol\/(\w+)\//.exec(page) ?? [];
  if (area !== undefined) return `${AREAS[area] ?? area}: ${name.replaceAll("_", " ")}`;
  // Names such as HTTP stay as they are.
  if (/^[A-Z]{2,5}$/.test(name) && !["TOUR", "REACT"].includes(name)) return name;
  const words = name.replaceAll(/[_-]/g, " ").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The order in which a newcomer reads the pages; the others follow by name. */
const ORDER = [
  "GETTING_STARTED.md",
  "CONCEPTS.md",
  "DEFINING_MODELS.md",
  "CLIENT.md",
  "REACT.md",
  "RECIPES.md",
  "ENGINES.md",
  "AGENTS.md",
  "EMBEDDING.md",
  "OPERATIONS.md",
  "CONFIGURATION.md",
  "SECURITY-MODEL.md",
];

/** The pages in the order of the list. */
export function sortPages(pages: readonly string[]): readonly string[] {
  const rank = (page: string) => (ORDER.indexOf(page) + 1 || ORDER.length + 1) - 1;
  return pages.toSorted((a, b) => rank(a) - rank(b) || titleOf(a).localeCompare(titleOf(b)));
}

/** The address of a link from one page of the documentation to another; undefined for what is not part of it. */
export function resolveLink(href: string, page: string, known: ReadonlySet<string>): string | undefined {
  if (/^[a-z]+:/i.test(href)) return undefined;
  const base = new URL(page, "http://docs/");
  const { pathname } = new URL(href, base);
  const target = decodeURIComponent(pathname.slice(1));
  return known.has(target) ? links.docs(target) : undefined;
}
