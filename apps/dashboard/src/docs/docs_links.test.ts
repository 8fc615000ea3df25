import { expect, test } from "vitest";
import { resolveLink, titleOf } from "./docs_links.ts";

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
