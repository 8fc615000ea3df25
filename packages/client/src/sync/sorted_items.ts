import type { Item } from "./plane_port.ts";

/** Sorted arrays of items that are made when they are asked for, from the last one and what changed since. */
export class SortedItems {
  #items: readonly Item[] = [];
  /** What the items will be, once somebody wants them. */
  #unsorted: Item[] | undefined;
  readonly #changed = new Map<string, Item | undefined>();

  /** An item has another content, or is gone. */
  set(key: string, item: Item | undefined): void {
    this.#changed.set(key, item);
  }

  /** All are others. The array is kept. */
  replace(items: Item[]): void {
    this.#changed.clear();
    this.#unsorted = items;
  }

  /** The same array until something changed. */
  all(): readonly Item[] {
    if (this.#unsorted) {
      this.#items = sorted(this.#unsorted);
      this.#unsorted = undefined;
    }
    if (this.#changed.size > 0) {
      this.#items = this.#replaceable() ? this.#replaced() : this.#merged();
      this.#changed.clear();
    }
    return this.#items;
  }

  /** Whether the same keys are there as before: then a copy with a few other items will do. */
  #replaceable(): boolean {
    if (this.#changed.size * 16 > this.#items.length) return false;
    for (const [key, item] of this.#changed) if (!item || !this.#has(key)) return false;
    return true;
  }

  #replaced(): readonly Item[] {
    const items = this.#items.slice();
    for (const [key, item] of this.#changed) items[indexOf(items, key)] = item!;
    return items;
  }

  #merged(): readonly Item[] {
    const keys = [...this.#changed.keys()].sort();
    const items: Item[] = [];
    let from = 0;
    for (const key of keys) {
      const at = indexOf(this.#items, key);
      for (; from < at; from++) items.push(this.#items[from]!);
      if (this.#items[at]?.key === key) from = at + 1;
      const item = this.#changed.get(key);
      if (item) items.push(item);
    }
    for (; from < this.#items.length; from++) items.push(this.#items[from]!);
    return items;
  }

  #has(key: string): boolean {
    return this.#items[indexOf(this.#items, key)]?.key === key;
  }
}

/** They mostly are: servers list in order. */
function sorted(items: Item[]): readonly Item[] {
  const inOrder = items.every(({ key }, i) => i === 0 || items[i - 1]!.key < key);
  return inOrder ? items : items.sort((a, b) => (a.key < b.key ? -1 : 1));
}

/** Where a key is, or would be. */
function indexOf(items: readonly Item[], key: string): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (items[middle]!.key < key) low = middle + 1;
    else high = middle;
  }
  return low;
}
