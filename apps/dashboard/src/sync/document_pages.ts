/** A document in the list: everything but its payload. */
export interface DocumentRow {
  readonly doc_key: string;
  readonly doc_version: string;
  readonly updated_at: string;
  readonly bytes: number;
  readonly audience: readonly string[];
  /** Its short fields. */
  readonly preview: Readonly<Record<string, unknown>>;
  /** It was deleted since it was read. It stays in its place until the list is reloaded. */
  readonly gone?: true;
}

/** A page as it was read: it begins after `after`, and the next one after `next`. */
export interface DocumentPage {
  readonly after: string | undefined;
  readonly rows: readonly DocumentRow[];
  readonly next: string | undefined;
}

/** The result of reading a page again. */
export interface Refreshed {
  /** The same rows in the same places, with their current versions. */
  readonly page: DocumentPage;
  /** Keys of new rows in the page. They are not shown until the list is reloaded. */
  readonly added: readonly string[];
}

/**
 * Merges a page with the same page read again. Nothing is inserted and nothing is removed, so that rows do not move under
 * a reader. Rows after the last common one are left alone: additions have pushed them to the next page.
 */
export function refreshPage(page: DocumentPage, again: DocumentPage): Refreshed {
  // In an empty list nothing moves.
  if (page.rows.length === 0 && again.rows.length > 0) return { page: again, added: [] };
  const before = new Set(page.rows.map(({ doc_key }) => doc_key));
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
    const isSame = fresh
      ? fresh.doc_version === row.doc_version && !row.gone
      : row.gone || !(complete || index <= lastCommon);
    if (isSame) return row;
    changed = true;
    return fresh ?? { ...row, gone: true as const };
  });
  return { page: changed ? { ...page, rows } : page, added };
}

/** The first and the last page that contain these rows. */
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
