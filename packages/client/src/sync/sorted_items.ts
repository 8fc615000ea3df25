import type { Environment } from "../environment.ts";
import type { Item } from "./plane_port.ts";

/** Items sorted by key. The array is built on demand, from the last one and the changes since. */
export class SortedItems {
  #items: readonly Item[] = [];
  readonly #changed = new Map<string, Item | undefined>();

  /** Changes an item, or removes it. */
  set(key: string, item: Item | undefined): void {
    this.#changed.set(key, item);
  }

  /** Replaces all items; they must be sorted. The array itself is used. */
  replace(items: readonly Item[]): void {
    this.#changed.clear();
    this.#items = items;
  }

  /** The same array until something changed. */
  all(): readonly Item[] {
    if (this.#changed.size > 0) {
      this.#items = this.#replaceable() ? this.#replaced() : this.#merged();
      this.#changed.clear();
    }
    return this.#items;
  }

  /** Whether the keys stay the same: then a copy with a few items changed is enough. */
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

/** Sorts by key, in slices of bounded length. */
export async function sortInSlices(items: readonly Item[], slices: WorkSlices): Promise<readonly Item[]> {
  // Usually true, because servers list in order.
  if (await isSorted(items, slices)) return items;
  let runs: (readonly Item[])[] = [];
  for (let from = 0; from < items.length; from += SLICE_ITEMS) {
    const run = items.slice(from, from + SLICE_ITEMS).sort((a, b) => (a.key < b.key ? -1 : 1));
    runs.push(run);
    if (slices.isOver(run.length)) await slices.yieldControl();
  }
  while (runs.length > 1) {
    const longer: (readonly Item[])[] = [];
    for (let i = 0; i < runs.length; i += 2) {
      const [left = [], right = []] = runs.slice(i, i + 2);
      longer.push(right.length > 0 ? await merged(left, right, slices) : left);
    }
    runs = longer;
  }
  return runs[0] ?? [];
}

async function isSorted(items: readonly Item[], slices: WorkSlices): Promise<boolean> {
  for (let i = 1; i < items.length; i++) {
    if (items[i - 1]!.key > items[i]!.key) return false;
    if (slices.isOver()) await slices.yieldControl();
  }
  return true;
}

async function merged(left: readonly Item[], right: readonly Item[], slices: WorkSlices): Promise<Item[]> {
  const items: Item[] = [];
  for (let l = 0, r = 0; l < left.length || r < right.length; ) {
    const fromLeft = r === right.length || (l < left.length && left[l]!.key < right[r]!.key);
    items.push(fromLeft ? left[l++]! : right[r++]!);
    if (slices.isOver()) await slices.yieldControl();
  }
  return items;
}

/** The index of a key, or where it would be inserted. */
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

/** Items processed without yielding: one or two milliseconds of work. */
export const SLICE_ITEMS = 2_000;

/** Splits long work into slices, and yields to the event loop between them: `if (slices.isOver()) await slices.yieldControl()`. */
export class WorkSlices {
  readonly #environment: Pick<Environment, "timer" | "yieldControl">;
  #left = SLICE_ITEMS;

  constructor(environment: Pick<Environment, "timer" | "yieldControl">) {
    this.#environment = environment;
  }

  /** Counts items; true when the slice is used up. */
  isOver(items = 1): boolean {
    this.#left -= items;
    return this.#left <= 0;
  }

  async yieldControl(): Promise<void> {
    this.#left = SLICE_ITEMS;
    const { yieldControl, timer } = this.#environment;
    if (yieldControl) await yieldControl.call(this.#environment);
    else await new Promise<void>((resolve) => timer.call(this.#environment, 0, resolve));
  }
}
