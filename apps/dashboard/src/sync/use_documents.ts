import { useKhala } from "@khala/client/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { type ErrorInfo, toErrorInfo } from "../data/fetch.ts";
import { usePaused } from "../data/pause.tsx";
import { type DocumentPage, type DocumentRow, pagesWithin, refreshPage } from "./document_pages.ts";
import { readPage } from "./sync_types.ts";

const PAGE = 500;
/** The server's maximum: fewer requests when everything is loaded. */
const LARGE_PAGE = 1_000;
/** The list ends here: a search narrows it down. */
const MAX_ROWS = 500_000;

export interface Documents {
  readonly rows: readonly DocumentRow[];
  /** Whether there is more to load. */
  readonly more: boolean;
  readonly error: ErrorInfo | undefined;
  /** How many documents were added to the loaded pages since. */
  readonly added: number;
  readonly loadingAll: boolean;
  readonly loadMore: () => void;
  readonly setLoadingAll: (on: boolean) => void;
  /** Loads everything again; rows move. */
  readonly reload: () => void;
  /** Reports which rows are on the screen: these are read again when the topic changes. */
  readonly setVisible: (first: number, last: number) => void;
}

interface State {
  readonly pages: readonly DocumentPage[];
  readonly added: ReadonlySet<string>;
  readonly error?: ErrorInfo;
}

const EMPTY: State = { pages: [], added: new Set() };

/**
 * The documents of a topic, page by page as they are needed. Not a query of the cache: of a hundred thousand rows only the
 * visible pages are read again, when `head` moves.
 */
export function useDocuments(topic: string, search: string, head: string | undefined): Documents {
  const { ops } = useKhala();
  const paused = usePaused();
  const [round, setRound] = useState(0);
  const list = JSON.stringify([topic, search, round]);
  const [state, setState] = useState<State & { list?: string }>(EMPTY);
  const [wanted, setWanted] = useState(1);
  const [loadingAll, setLoadingAll] = useState(false);
  const visible = useRef<readonly [number, number]>([0, 0]);

  const isCurrent = state.list === list;
  const { pages, added, error } = isCurrent ? state : EMPTY;
  const more = pages.length === 0 || pages.at(-1)?.next !== undefined;
  const count = pages.reduce((sum, { rows }) => sum + rows.length, 0);
  const isWanted = (count < wanted || loadingAll) && more && count < MAX_ROWS && error === undefined;

  const read = useCallback(
    async (after: string | undefined, limit: number) => {
      const options = { topic, limit, ...(search && { search }), ...(after !== undefined && { after }) };
      return readPage(await ops.documents(options), after);
    },
    [ops, topic, search],
  );

  // biome-ignore lint/correctness/useExhaustiveDependencies: another list begins at the start.
  useEffect(() => {
    setWanted(1);
    setLoadingAll(false);
    visible.current = [0, 0];
  }, [list]);

  // One page at a time, until there is enough.
  useEffect(() => {
    if (!isWanted) return;
    let isOld = false;
    const update = (change: (old: State) => State) => {
      if (!isOld) setState((old) => ({ ...change(old.list === list ? old : EMPTY), list }));
    };
    read(pages.at(-1)?.next, loadingAll ? LARGE_PAGE : PAGE).then(
      (page) => update((old) => ({ ...old, pages: [...old.pages, page] })),
      (failure: unknown) => update((old) => ({ ...old, error: toErrorInfo(failure) })),
    );
    return () => {
      isOld = true;
    };
  }, [isWanted, pages, read, list, loadingAll]);

  // The visible pages are read again when the topic changes. If that fails, the list of topics shows the error.
  const isReady = isCurrent && pages.length > 0;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the head tells that something changed.
  useEffect(() => {
    if (!isReady || paused) return;
    let isOld = false;
    const [from, to] = pagesWithin(pages, ...visible.current);
    for (const page of pages.slice(from, to + 1))
      read(page.after, Math.max(PAGE, page.rows.length)).then(
        (again) => {
          if (!isOld) setState((old) => mergePage(old, page, again));
        },
        () => {},
      );
    return () => {
      isOld = true;
    };
  }, [head, isReady, paused]);

  return {
    rows: useMemo(() => pages.flatMap((page) => page.rows), [pages]),
    more,
    error,
    added: added.size,
    loadingAll: loadingAll && more,
    loadMore: useCallback(() => setWanted(count + 1), [count]),
    setLoadingAll,
    reload: useCallback(() => setRound((n) => n + 1), []),
    setVisible: useCallback((first: number, last: number) => {
      visible.current = [first, last];
    }, []),
  };
}

function mergePage<S extends State>(old: S, page: DocumentPage, again: DocumentPage): S {
  const index = old.pages.indexOf(page);
  if (index < 0) return old;
  const result = refreshPage(page, again);
  const hasNew = result.added.some((key) => !old.added.has(key));
  if (result.page === page && !hasNew) return old;
  return {
    ...old,
    pages: result.page === page ? old.pages : old.pages.with(index, result.page),
    added: hasNew ? new Set([...old.added, ...result.added]) : old.added,
  };
}
