import { useCallback, useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import type { Item, ListSnapshot, Snapshot } from "../sync/plane_port.ts";
import { useKhala } from "./provider.ts";

const NO_DOCUMENT: Snapshot<never> = { phase: "loading", stale: false };
const NO_LIST: ListSnapshot<never> = { items: [], phase: "loading" };

/** One document, live. */
export function useDoc<Doc = unknown>(topic: string, key: string): Snapshot<Doc> {
  const { sync } = useKhala();
  const subscribe = useCallback(
    (listener: () => void) => sync.subscribe(topic, key, listener),
    [sync, topic, key],
  );
  // What a document is, only its app knows.
  const read = () => sync.get(topic, key) as Snapshot<Doc>;
  return useSyncExternalStore(subscribe, read, () => NO_DOCUMENT);
}

export interface ListOptions<Doc, Result> {
  /** Which documents. */
  readonly filter?: (item: Item<Doc>) => boolean;
  /** What of each. */
  readonly select?: (item: Item<Doc>) => Result;
}

/** What is shown of a topic. */
export interface SelectedList<Result> extends Omit<ListSnapshot, "items"> {
  readonly items: readonly Result[];
}

/** The documents of a topic, live and sorted by key. A change that `filter` and `select` leave out renders nothing. */
export function useList<Doc = unknown, Result = Item<Doc>>(
  topic: string,
  options: ListOptions<Doc, Result> = {},
): SelectedList<Result> {
  const { sync } = useKhala();
  const { filter, select } = options;
  const subscribe = useCallback((listener: () => void) => sync.subscribe(topic, listener), [sync, topic]);
  const shown = useRef<SelectedList<Result> | undefined>(undefined);
  const read = useMemo(() => {
    let seen: ListSnapshot<Doc> | undefined;
    let selected: SelectedList<Result> | undefined;
    return () => {
      const list = sync.list(topic) as ListSnapshot<Doc>;
      if (selected && list === seen) return selected;
      seen = list;
      selected = kept(
        selected ?? shown.current,
        selectedOf(list, filter, select),
        select ? alike : Object.is,
      );
      return selected;
    };
  }, [sync, topic, filter, select]);
  const result = useSyncExternalStore(subscribe, read, () => NO_LIST as SelectedList<Result>);
  // Functions that are written inline are new in every render; what they give need not be.
  useEffect(() => {
    shown.current = result;
  }, [result]);
  return result;
}

function selectedOf<Doc, Result>(
  { items, ...rest }: ListSnapshot<Doc>,
  filter: ListOptions<Doc, Result>["filter"],
  select: ListOptions<Doc, Result>["select"],
): SelectedList<Result> {
  const chosen = filter ? items.filter(filter) : items;
  // Without `select` the result is the item itself.
  return { ...rest, items: select ? chosen.map(select) : (chosen as readonly Result[]) };
}

/** The newer list, with what it has in common with the one before it. Documents themselves are the same objects until they change. */
function kept<Result>(
  before: SelectedList<Result> | undefined,
  after: SelectedList<Result>,
  isAlike: (a: unknown, b: unknown) => boolean,
): SelectedList<Result> {
  if (!before) return after;
  const asBefore = after.items.length === before.items.length;
  const same = asBefore && after.items.every((item, i) => isAlike(before.items[i], item));
  if (same && before.phase === after.phase && before.error === after.error) return before;
  if (same) return { ...after, items: before.items };
  if (isAlike === Object.is) return after;
  const items = after.items.map((item, i) =>
    isAlike(before.items[i], item) ? (before.items[i] as Result) : item,
  );
  return { ...after, items };
}

/** The same, or objects with the same fields. */
function alike(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  const [left, right] = [Object.entries(a), Object.entries(b)];
  return (
    left.length === right.length && right.every(([name, value]) => Object.is(value, Reflect.get(a, name)))
  );
}
