import { type QueryKey, type UseQueryResult, useQuery } from "@tanstack/react-query";
import { useCallback, useRef } from "react";
import { usePaused } from "./pause.tsx";

/** What the page shows of an error. A KhalaError has both fields. */
export interface ErrorInfo {
  readonly message: string;
  readonly code?: string;
}

declare module "@tanstack/react-query" {
  interface Register {
    defaultError: ErrorInfo;
  }
}

export interface FetchState<Data> {
  /** The last answer. It stays while the next one is fetched, and when that fails. */
  readonly data: Data | undefined;
  readonly error: ErrorInfo | undefined;
  /** True until the first answer or error. */
  readonly loading: boolean;
  readonly refetch: () => void;
}

/**
 * Fetches from the server, and again every `everyMs`, but not while the view is paused or the tab hidden. Without a key it
 * fetches nothing.
 */
export function useFetch<Data>(
  key: QueryKey | undefined,
  fetch: (signal: AbortSignal) => Promise<Data>,
  everyMs?: number,
): FetchState<Data> {
  const paused = usePaused();
  const polls = everyMs !== undefined && !paused;
  const query = useQuery({
    queryKey: key ?? ["disabled"],
    queryFn: ({ signal }) => fetch(signal),
    enabled: key !== undefined,
    refetchInterval: polls && everyMs,
    refetchOnWindowFocus: polls,
  });
  return useFetchState(key, query, query.data);
}

/** The state of a query. An error is kept while it is fetched again: otherwise each poll of a failing server would flash. */
export function useFetchState<Data>(
  key: QueryKey | undefined,
  query: Pick<UseQueryResult, "error" | "isLoading" | "refetch">,
  data: Data | undefined,
): FetchState<Data> {
  const hash = JSON.stringify(key);
  const last = useRef<{ readonly hash: string | undefined; readonly error: ErrorInfo }>(undefined);
  if (query.error) last.current = { hash, error: query.error };
  else if (data !== undefined || last.current?.hash !== hash) last.current = undefined;
  const error = last.current?.error;
  const { refetch } = query;
  return {
    data,
    error,
    loading: query.isLoading && error === undefined,
    refetch: useCallback(() => void refetch(), [refetch]),
  };
}

/** Any thrown value as an error that can be shown. */
export function toErrorInfo(error: unknown): ErrorInfo {
  if (!(error instanceof Error)) return { message: String(error) };
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  return code === undefined ? { message: error.message } : { message: error.message, code };
}
