import { describe, expect, test } from "vitest";
import { type DocumentPage, pagesWithin, refreshPage } from "./document_pages.ts";

const page = (keys: string, next?: string, version = "1"): DocumentPage => ({
  after: undefined,
  next,
  rows: [...keys].map((doc_key) => ({
    doc_key,
    doc_version: version,
    updated_at: "2026-01-01T00:00:00.000Z",
    bytes: 2,
    audience: [],
    preview: {},
  })),
});

const goneOf = ({ rows }: DocumentPage) => rows.filter(({ gone }) => gone).map(({ doc_key }) => doc_key);
const keys = ({ rows }: DocumentPage) => rows.map(({ doc_key }) => doc_key).join("");

describe("a page that is loaded again", () => {
  test("keeps its rows in place and updates them", () => {
    const { page: after, added } = refreshPage(page("abc"), page("abc", undefined, "2"));
    expect(keys(after)).toBe("abc");
    expect(after.rows.map(({ doc_version }) => doc_version)).toEqual(["2", "2", "2"]);
    expect([added, goneOf(after)]).toEqual([[], []]);
  });

  test("is the same object when nothing changed", () => {
    const before = page("abc");
    expect(refreshPage(before, page("abc")).page).toBe(before);
  });

  test("counts new documents without showing them", () => {
    const { page: after, added } = refreshPage(page("ace", "e"), page("abc", "c"));
    expect(keys(after)).toBe("ace");
    expect(added).toEqual(["b"]);
  });

  test("that was empty shows the new documents", () => {
    const { page: after, added } = refreshPage(page(""), page("abc", "c"));
    expect([keys(after), after.next, added]).toEqual(["abc", "c", []]);
  });

  test("does not mark a document as deleted that moved to the next page", () => {
    expect(goneOf(refreshPage(page("ace", "e"), page("abc", "c")).page)).toEqual([]);
  });

  test("marks deleted documents and keeps them in place", () => {
    const { page: after } = refreshPage(page("abc", "c"), page("acd", "d"));
    expect(keys(after)).toBe("abc");
    expect(goneOf(after)).toEqual(["b"]);
    expect(goneOf(refreshPage(after, page("abc", "c")).page)).toEqual([]);
  });

  test("marks the last rows as deleted at the end of the list", () => {
    expect(goneOf(refreshPage(page("abc"), page("a")).page)).toEqual(["b", "c"]);
  });
});

test("finds rows in the pages that contain them", () => {
  const pages = [page("abc", "c"), page("def", "f"), page("g")];
  expect(pagesWithin(pages, 0, 2)).toEqual([0, 0]);
  expect(pagesWithin(pages, 2, 3)).toEqual([0, 1]);
  expect(pagesWithin(pages, 3, 6)).toEqual([1, 2]);
  expect(pagesWithin([], 0, 10)).toEqual([0, 0]);
});
