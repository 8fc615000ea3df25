import { links } from "../router.ts";

/** Names that are not written as their file is. */
const TITLES: Readonly<Record<string, string>> = {
  "guides/mcp.md": "MCP",
  "guides/openapi.md": "OpenAPI",
  "protocol/OA_SYNC_WS_MAPPING.md": "Sync",
  "protocol/OPS.md": "Operations",
  "runbooks/MOVE_TO_KAFKA.md": "Move to Kafka",
  "runbooks/MOVE_TO_REDIS.md": "Move to Redis",
  "runbooks/POSTGRES_FAILOVER.md": "PostgreSQL failover",
  "runbooks/REDIS_FAILOVER.md": "Redis failover",
  "runbooks/REDIS_MEMORY.md": "Redis memory",
};

/** The name of a page of the documentation: "GETTING_STARTED.md" is "Getting started". */
export function titleOf(page: string): string {
  const title = TITLES[page];
  if (title !== undefined) return title;
  const name = page.slice(page.lastIndexOf("/") + 1).replace(/\.md$/, "");
  // Names such as HTTP stay as they are.
  if (/^[A-Z]{2,5}$/.test(name) && !["TOUR", "REACT"].includes(name)) return name;
  const words = name.replaceAll(/[_-]/g, " ").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The address of a link from one page of the documentation to another; undefined for what is not part of it. */
export function resolveLink(href: string, page: string, known: ReadonlySet<string>): string | undefined {
  if (/^[a-z]+:/i.test(href)) return undefined;
  const base = new URL(page, "http://docs/");
  const { pathname } = new URL(href, base);
  const target = decodeURIComponent(pathname.slice(1));
  return known.has(target) ? links.docs(target) : undefined;
}
