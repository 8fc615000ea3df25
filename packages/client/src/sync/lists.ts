import type { Item, ListOptions, ListSnapshot, Where } from "./plane_port.ts";

/** The name of a part, which is followed and stored like a topic: `topic?field=value`, fields in the order of their names. Without a field: the topic. */
export function partOf<Doc = unknown>(topic: string, where: Where<Doc> = {}): string {
  const fields = Object.entries<unknown>(where).sort(([a], [b]) => (a < b ? -1 : 1));
  const pairs = fields.map(([name, value]) => {
    // Without a value it would be the whole topic, which may be much more.
    if (typeof value !== "string")
      throw new TypeError(`where.${name} of ${topic} must be a string, not ${String(value)}.`);
    return `${name}=${encodeURIComponent(value)}`;
  });
  return pairs.length === 0 ? topic : `${topic}?${pairs.join("&")}`;
}

/** The topic of a name, and the query that lists the part. */
export function topicAndQuery(name: string): {
  readonly topic: string;
  readonly query: Record<string, string>;
} {
  const at = name.indexOf("?");
  if (at < 0) return { topic: name, query: {} };
  return { topic: name.slice(0, at), query: Object.fromEntries(new URLSearchParams(name.slice(at + 1))) };
}

/** Identifies what `ArrangedLists` makes of a list; empty for the list as it is. */
export function arrangementOf({ order, filter, limit }: ListOptions<never>): string {
  const chosen = Object.entries(filter ?? {}).filter(([, value]) => value !== undefined);
  if (order === undefined && chosen.length === 0 && limit === undefined) return "";
  return JSON.stringify([order, chosen.sort(), limit]);
}

/** Arrangements that are remembered at a time: those of the lists on a screen. */
const MAX_ARRANGEMENTS = 64;

interface Arranged {
  readonly from: ListSnapshot;
  readonly list: ListSnapshot;
}

/** Ordered and filtered lists of a topic. Each is the same object until something in it changes. */
export class ArrangedLists {
  readonly #known = new Map<string, Arranged>();

  get(from: ListSnapshot, options: ListOptions<never>): ListSnapshot {
    const name = arrangementOf(options);
    if (name === "") return from;
    const known = this.#known.get(name);
    if (known?.from === from) return known.list;
    const list = sameIf(known?.list, { ...from, items: arrange(from.items, options) });
    // Again as the newest.
    this.#known.delete(name);
    this.#known.set(name, { from, list });
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= MAX_ARRANGEMENTS) break;
      this.#known.delete(oldest);
    }
    return list;
  }
}

function sameIf(before: ListSnapshot | undefined, after: ListSnapshot): ListSnapshot {
  const sameItems =
    before?.items.length === after.items.length && before.items.every((item, i) => item === after.items[i]);
  if (!before || !sameItems) return after;
  return before.phase === after.phase && before.error === after.error
    ? before
    : { ...after, items: before.items };
}

/** Filters and orders items as the server's lists do. */
function arrange(items: readonly Item[], { order, filter = {}, limit }: ListOptions<never>): readonly Item[] {
  const wanted = Object.entries<unknown>(filter).filter(([, value]) => value !== undefined);
  let arranged = items.filter(({ data }) =>
    wanted.every(
      ([field, value]) => isScalar(fieldIn(data, field)) && String(fieldIn(data, field)) === String(value),
    ),
  );
  if (order !== undefined) {
    const [field, sign] = String(order).startsWith("-") ? [String(order).slice(1), -1] : [String(order), 1];
    const byField = (a: Item, b: Item) => compare(fieldIn(a.data, field), fieldIn(b.data, field));
    arranged.sort((a, b) => sign * (byField(a, b) || compare(a.key, b.key)));
  }
  if (limit !== undefined) arranged = arranged.slice(0, limit);
  return arranged;
}

function fieldIn(data: unknown, field: string): unknown {
  return typeof data === "object" && data !== null && Object.hasOwn(data, field)
    ? Reflect.get(data, field)
    : undefined;
}

const TYPES = ["boolean", "number", "string"];

function isScalar(value: unknown): boolean {
  return TYPES.includes(typeof value);
}

/** Nothing first, then booleans, numbers and texts. */
function compare(a: unknown, b: unknown): number {
  const byType = TYPES.indexOf(typeof a) - TYPES.indexOf(typeof b);
  if (byType !== 0 || !isScalar(a) || a === b) return byType;
  // Two values of one type.
  return (a as string) < (b as string) ? -1 : 1;
}
