import { expect, test } from "vitest";
import { resolveLink, sortPages, titleOf } from "./docs_links.ts";

const KNOWN = new Set(["ENGINES.md", "protocol/ERRORS.md"]);

test("keeps a link between pages in the dashboard", () => {
  expect(resolveLink("../ENGINES.md#failures", "protocol/ERRORS.md", KNOWN)).toBe("/docs?page=ENGINES.md");
  expect(resolveLink("protocol/ERRORS.md", "ENGINES.md", KNOWN)).toBe("/docs?page=protocol%2FERRORS.md");
});

test("leaves a link outside of the documentation alone", () => {
  for (const href of ["https://example.com", "../../proto/ops.proto", "adr/README.md", "javascript:alert(1)"])
    expect(resolveLink(href, "ENGINES.md", KNOWN)).toBeUndefined();
});

test("names pages", () => {
  expect(["GETTING_STARTED.md", "protocol/HTTP.md", "TOUR.md"].map(titleOf)).toEqual([
    "Getting started",
    "HTTP",
    "Tour",
  ]);
});

test("names pages of the protocol after the page above them", () => {
  const pages = ["protocol/http/routes.md", "protocol/http/mcp.md", "protocol/blackboard/dead_letters.md"];
  expect(pages.map(titleOf)).toEqual(["HTTP: routes", "HTTP: MCP", "Blackboard: dead letters"]);
});

const GUIDES = import.meta.glob<string>("../../../../docs/guides/*.md", {
  query: "?raw",
  import: "default",
  eager: true,
});

test("names guides as their headings do", () => {
  expect(Object.keys(GUIDES).length).toBeGreaterThan(10);
  for (const [path, text] of Object.entries(GUIDES)) {
    const page = path.slice(path.indexOf("guides/"));
    expect(`# ${titleOf(page)}`, page).toBe(text.split("\n")[0]);
  }
});

test("lists the pages for newcomers first", () => {
  const pages = ["AGENTS.md", "TOUR.md", "CONCEPTS.md", "guides/tools.md", "GETTING_STARTED.md"];
  expect(sortPages(pages)).toEqual([
    "GETTING_STARTED.md",
    "CONCEPTS.md",
    "AGENTS.md",
    "guides/tools.md",
    "TOUR.md",
  ]);
});
