import { useKhala } from "@khala/client/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { asFailure } from "../parts/asking.ts";
import { usePaused } from "../parts/pause.tsx";
import type { FailureLike } from "../parts/states.tsx";
import { type DocumentPage, type DocumentRow, pagesWithin, refreshPage } from "./document_pages.ts";
import { readPage } from "./sync_types.ts";

const PAGE = 500;
/** What the server gives at most: fewer questions when all of it is wanted. */
const LARGE_PAGE = 1_000;
/** Rows that are kept in the page at most: a search narrows down what is more. */
const MOST = 500_000;

export interface Documents {
  readonly rows: readonly DocumentRow[];
  /** Whether there is more to read. */
  readonly more: boolean;
  readonly loading: boolean;
  readonly error: FailureLike | undefined;
  /** Documents that appeared since, in what was read again. */
  readonly added: number;
  readonly loadingAll: boolean;
  /** Reads the next page. */
  readonly loadMore: () => void;
  readonly setLoadingAll: (on: boolean) => void;
  /** Reads everything anew; rows move. */
  readonly restart: () => void;
  /** Tells which rows are on the screen: these are read again when something changed. */
  readonly look: (first: number, last: number) => void;
}

interface State {
  readonly pages: readonly DocumentPage[];
  readonly added: ReadonlySet<string>;
  readonly error?: FailureLike;
}

const NOTHING: State = { pages: [], added: new Set() };

/** The documents of a topic, page by page as they are wanted. `head` says when to read again what is on the screen. */
export function useDocuments(topic: string, search: string, head: string | undefined): Documents {
  const { ops } = useKhala();
  const paused = usePaused();
  const question = JSON.stringify([topic, search]);
  const [state, setState] = useState<State & { question?: string; round?: number }>(NOTHING);
  const [round, setRound] = useState(0);
  const [wanted, setWanted] = useState(1);
  const [loadingAll, setLoadingAll] = useState(false);
  const seen = useRef<readonly [number, number]>([0, 0]);

  const isCurrent = state.question === question && state.round === round;
  const { pages, added, error } = isCurrent ? state : NOTHING;
  const more = pages.length === 0 || pages.at(-1)?.next !== undefined;
  const count = pages.reduce((sum, { rows }) => sum + rows.length, 0);
  const isWanted = (count < wanted || loadingAll) && more && count < MOST && error === undefined;

  const read = useCallback(
    async (after: string | undefined, limit: number) =>
      readPage(
        await ops.documents({
          topic,
          limit,
          ...(search && { search }),
          ...(after !== undefined && { after }),
        }),
        after,
      ),
    [ops, topic, search],
  );

  // biome-ignore lint/correctness/useExhaustiveDependencies: another question begins at the start.
  useEffect(() => {
    setWanted(1);
    setLoadingAll(false);
    seen.current = [0, 0];
  }, [question, round]);

  // One page at a time, until there is what is wanted.
  useEffect(() => {
    if (!isWanted) return;
    let isOld = false;
    const after = pages.at(-1)?.next;
    const keep = (change: (old: State) => State) => {
      if (isOld) return;
      setState((old) => {
        const base = old.question === question && old.round === round ? old : NOTHING;
        return { ...change(base), question, round };
      });
    };
    read(after, loadingAll ? LARGE_PAGE : PAGE).then(
      (page) => keep((old) => ({ ...old, pages: [...old.pages, page] })),
      (failure: unknown) => keep((old) => ({ ...old, error: asFailure(failure) })),
    );
    return () => {
      isOld = true;
    };
  }, [isWanted, pages, read, question, round, loadingAll]);

  // What is on the screen is read again when the topic has moved. A failure leaves what is shown: the topics say so.
  const isReady = isCurrent && pages.length > 0;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the head is what says that something changed.
  useEffect(() => {
    if (!isReady || paused) return;
    let isOld = false;
    const [from, to] = pagesWithin(pages, ...seen.current);
    for (const page of pages.slice(from, to + 1)) {
      const refresh = (again: DocumentPage) => {
        if (isOld) return;
        setState((old) => refreshed(old, page, again));
      };
      read(page.after, Math.max(PAGE, page.rows.length)).then(refresh, () => {});
    }
    return () => {
      isOld = true;
    };
  }, [head, isReady, paused]);

  const rows = useMemo(() => pages.flatMap((page) => page.rows), [pages]);
  return {
    rows,
    more,
    loading: isWanted,
    error,
    added: added.size,
    loadingAll: loadingAll && more,
    loadMore: useCallback(() => setWanted(count + 1), [count]),
    setLoadingAll,
    restart: useCallback(() => setRound((n) => n + 1), []),
    look: useCallback((first: number, last: number) => {
      seen.current = [first, last];
    }, []),
  };
}

function refreshed<S extends State>(old: S, page: DocumentPage, again: DocumentPage): S {
  const index = old.pages.indexOf(page);
  if (index < 0) return old;
  const result = refreshPage(page, again);
  const isNews = result.added.some((key) => !old.added.has(key));
  if (result.page === page && !isNews) return old;
  return {
    ...old,
    pages: result.page === page ? old.pages : old.pages.with(index, result.page),
    added: isNews ? new Set([...old.added, ...result.added]) : old.added,
  };
}
