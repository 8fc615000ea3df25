import type { FetchQueryOptions, QueryClient, QueryFunctionContext } from "@tanstack/query-core";
import type { DocumentOf, Item, Sync, TopicName, Topics } from "../sync/plane_port.ts";

/** The key of a live query: a topic, or one of its documents. */
export type KhalaQueryKey = readonly ["khala", topic: string, docKey?: string];

/** The options of a query, for `useQuery`, `prefetchQuery` and the like. */
export type LiveQueryOptions<Data> = Required<
  Pick<FetchQueryOptions<Data, Error, Data, KhalaQueryKey>, "queryKey" | "staleTime" | "structuralSharing">
> & { readonly queryFn: (context: QueryFunctionContext<KhalaQueryKey>) => Promise<Data> };

/** Queries on synced documents. The cache stays up to date while a query is observed. */
export interface LiveQueries<T extends Topics> {
  /** One document; null when there is none. */
  doc<Topic extends TopicName<T>>(topic: Topic, key: string): LiveQueryOptions<DocumentOf<T, Topic> | null>;
  /** All documents of a topic, by their keys. */
  list<Topic extends TopicName<T>>(topic: Topic): LiveQueryOptions<readonly Item<DocumentOf<T, Topic>>[]>;
  /** Stops updating the cache. */
  stop(): void;
}

/** Connects a client with a query cache. Call it once. */
export function liveQueries<T extends Topics>(
  client: { readonly sync: Sync<T> },
  queryClient: QueryClient,
): LiveQueries<T> {
  const { sync } = client;
  const live = new Map<string, () => void>();

  const read = ([, topic, key]: KhalaQueryKey) =>
    key === undefined ? sync.list(topic).items : (sync.get(topic, key).data ?? null);

  function follow(hash: string, queryKey: KhalaQueryKey): void {
    if (live.has(hash)) return;
    const [, topic, key] = queryKey;
    const ended = new AbortController();
    let ready = false;
    const update = () => {
      const cached = queryClient.getQueryData(queryKey);
      // Nothing to update before the query function has answered.
      if (!ready || cached === undefined || cached === read(queryKey)) return;
      queryClient.setQueryData(queryKey, read(queryKey));
    };
    const stop = key === undefined ? sync.subscribe(topic, update) : sync.subscribe(topic, key, update);
    live.set(hash, () => {
      ended.abort();
      stop();
    });
    sync.ready(topic, { signal: ended.signal }).then(
      () => {
        ready = true;
        update();
      },
      // The query function gets the same error and reports it.
      () => {},
    );
  }

  function unfollow(hash: string): void {
    live.get(hash)?.();
    live.delete(hash);
  }

  const stopListening = queryClient.getQueryCache().subscribe(({ type, query }) => {
    if (!isOurs(query.queryKey)) return;
    if (type === "observerAdded") follow(query.queryHash, query.queryKey);
    if (type === "removed" || (type === "observerRemoved" && query.getObserversCount() === 0))
      unfollow(query.queryHash);
  });

  function options<Data>(queryKey: KhalaQueryKey): LiveQueryOptions<Data> {
    return {
      queryKey,
      async queryFn({ signal }) {
        await sync.ready(queryKey[1], { signal });
        // Only the app knows the document's type.
        return read(queryKey) as Data;
      },
      // Updates are pushed, so it is never refetched.
      staleTime: Number.POSITIVE_INFINITY,
      structuralSharing: false,
    };
  }

  return {
    doc: (topic, key) => options(["khala", topic, key]),
    list: (topic) => options(["khala", topic]),
    stop() {
      stopListening();
      for (const hash of [...live.keys()]) unfollow(hash);
    },
  };
}

function isOurs(key: readonly unknown[]): key is KhalaQueryKey {
  return key[0] === "khala" && typeof key[1] === "string";
}
