/** A document in the list: everything but its payload. */
export interface DocumentRow {
  readonly doc_key: string;
  readonly doc_version: string;
  readonly updated_at: string;
  readonly bytes: number;
  readonly audience: readonly string[];
  /** It was deleted since it was read. It stays in its place until a person asks for the list anew. */
  readonly gone?: true;
}

/** A page as it was read: it begins after `after`, and the next one after `next`. */
export interface DocumentPage {
  readonly after: string | undefined;
  readonly rows: readonly DocumentRow[];
  readonly next: string | undefined;
}

/** What reading a page again has shown. */
export interface Refreshed {
  /** The same rows in the same places, with what is known now. */
  readonly page: DocumentPage;
  /** Keys that are in the page now and were not. They are not shown until a person asks. */
  readonly added: readonly string[];
}

/**
 * Compares a page with the same page read again. Nothing is inserted and nothing is removed, so that rows do not move under
 * a reader; behind the last row that both have, nothing can be told, because what was added has pushed it to the next page.
 */
export function refreshPage(page: DocumentPage, again: DocumentPage): Refreshed {
  // Where nothing is shown, nothing moves.
  if (page.rows.length === 0 && again.rows.length > 0) return { page: again, added: [] };
  const before = new Map(page.rows.map((row, index) => [row.doc_key, index]));
  const now = new Map(again.rows.map((row) => [row.doc_key, row]));
  const complete = again.next === undefined;
  const lastCommon = page.rows.findLastIndex(({ doc_key }) => now.has(doc_key));
  const lastCommonNow = again.rows.findLastIndex(({ doc_key }) => before.has(doc_key));
  const added = again.rows
    .filter(({ doc_key }, index) => !before.has(doc_key) && (complete || index <= lastCommonNow))
    .map(({ doc_key }) => doc_key);
  let changed = false;
  const rows = page.rows.map((row, index) => {
    const fresh = now.get(row.doc_key);
    if (
      fresh
        ? fresh.doc_version === row.doc_version && !row.gone
        : row.gone || !(complete || index <= lastCommon)
    )
      return row;
    changed = true;
    return fresh ?? { ...row, gone: true as const };
  });
  return { page: changed ? { ...page, rows } : page, added };
}

/** Which pages a stretch of rows touches, first and last. */
export function pagesWithin(
  pages: readonly DocumentPage[],
  first: number,
  last: number,
): readonly [number, number] {
  let from = 0;
  let start = 0;
  while (from < pages.length - 1 && start + pages[from]!.rows.length <= first)
    start += pages[from++]!.rows.length;
  let to = from;
  while (to < pages.length - 1 && start + pages[to]!.rows.length <= last) start += pages[to++]!.rows.length;
  return [from, to];
}
