import type { CollectionConfig, SyncConfig } from "@tanstack/db";
import type { DocumentOf, Item, Sync, TopicName, Topics } from "../sync/plane_port.ts";

export interface CollectionSource<T extends Topics, Topic extends TopicName<T>> {
  /** The client that has the documents. */
  readonly client: { readonly sync: Sync<T> };
  readonly topic: Topic;
  /** The collection's name. Default: the topic. */
  readonly id?: string;
}

/** Options of a read-only TanStack DB collection of a topic. A row is `{ key, version, data, updatedAt }`. */
export function khalaCollectionOptions<T extends Topics, Topic extends TopicName<T>>({
  client,
  topic,
  id = topic,
}: CollectionSource<T, Topic>): CollectionConfig<Item<DocumentOf<T, Topic>>, string> {
  return {
    id,
    getKey: ({ key }) => key,
    sync: { rowUpdateMode: "full", sync: (to) => syncRows(client.sync, topic, to) },
  };
}

type Sink<Row extends object> = Parameters<SyncConfig<Row, string>["sync"]>[0];

/** Updates the collection's rows after each change of the topic. */
function syncRows<T extends Topics, Topic extends TopicName<T>>(
  sync: Sync<T>,
  topic: Topic,
  { begin, write, commit, markReady, markError }: Sink<Item<DocumentOf<T, Topic>>>,
): () => void {
  type Row = Item<DocumentOf<T, Topic>>;
  let rows = new Map<string, Row>();
  let lastItems: readonly Row[] = [];
  const ended = new AbortController();

  function update(): void {
    const { items } = sync.list(topic);
    if (items === lastItems) return;
    lastItems = items;
    const next = new Map(items.map((row) => [row.key, row]));
    begin();
    for (const key of rows.keys()) if (!next.has(key)) write({ type: "delete", key });
    for (const [key, value] of next) {
      const before = rows.get(key);
      if (before !== value) write({ type: before ? "update" : "insert", value });
    }
    commit();
    rows = next;
  }

  const stop = sync.subscribe(topic, update);
  sync.ready(topic, { signal: ended.signal }).then(
    () => {
      update();
      markReady();
    },
    (error: unknown) => {
      if (!ended.signal.aborted) markError(error);
    },
  );
  return () => {
    ended.abort();
    stop();
  };
}
