import type { FetchQueryOptions, QueryClient, QueryFunctionContext } from "@tanstack/query-core";
import type { DocumentOf, Item, Sync, TopicName, Topics } from "../sync/plane_port.ts";

/** What names a query of ours: a topic, or a document of it. */
export type KhalaQueryKey = readonly ["khala", topic: string, docKey?: string];

/** The options of a query, for `useQuery`, `prefetchQuery` and the like. */
export type LiveQueryOptions<Data> = Required<
  Pick<FetchQueryOptions<Data, Error, Data, KhalaQueryKey>, "queryKey" | "staleTime" | "structuralSharing">
> & { readonly queryFn: (context: QueryFunctionContext<KhalaQueryKey>) => Promise<Data> };

/** Queries that read the sync plane, and stay true in the cache for as long as somebody observes them. */
export interface LiveQueries<T extends Topics> {
  /** One document; null when there is none. */
  doc<Topic extends TopicName<T>>(topic: Topic, key: string): LiveQueryOptions<DocumentOf<T, Topic> | null>;
  /** All documents of a topic, by their keys. */
  list<Topic extends TopicName<T>>(topic: Topic): LiveQueryOptions<readonly Item<DocumentOf<T, Topic>>[]>;
  /** Leaves the cache as it is, and keeps it up to date no more. */
  stop(): void;
}

/** Connects a client's documents with a query cache: once for each, where both are made. */
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
      // Before the query function has answered there is nothing to keep up to date.
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
      // The query function is told the same, and says it to whoever asked.
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
        // What a document is, only its app knows.
        return read(queryKey) as Data;
      },
      // It is kept up to date; asking again would bring the same.
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
