import { Oldest } from "./oldest.ts";

interface Lane<T> {
  readonly waiting: T[];
  busy: boolean;
}

/** Work in lanes: the items of a lane follow each other, and lanes run beside each other, oldest first. */
export class Lanes<T> {
  readonly #lanes = new Map<string, Lane<T>>();
  // Lanes that have something to do and are not busy. A Set keeps the order and finds each at once.
  readonly #ready = new Set<string>();
  readonly #oldest = new Oldest(this.#ready);
  #waiting = 0;

  add(name: string, item: T): void {
    let lane = this.#lanes.get(name);
    if (!lane) {
      lane = { waiting: [], busy: false };
      this.#lanes.set(name, lane);
    }
    lane.waiting.push(item);
    this.#waiting++;
    if (!lane.busy) this.#ready.add(name);
  }

  /** Takes the next item; its lane is busy until it is released. */
  next(): { readonly lane: string; readonly item: T } | undefined {
    for (let name = this.#oldest.next(); name !== undefined; name = this.#oldest.next()) {
      this.#ready.delete(name);
      const lane = this.#lanes.get(name);
      const item = lane?.waiting.shift();
      if (!lane || item === undefined) continue;
      lane.busy = true;
      this.#waiting--;
      return { lane: name, item };
    }
    return undefined;
  }

  /** Lets a lane go on. */
  release(name: string): void {
    const lane = this.#lanes.get(name);
    if (!lane) return;
    lane.busy = false;
    if (lane.waiting.length > 0) this.#ready.add(name);
    else this.#lanes.delete(name);
  }

  /** Puts an item back before all others of its lane, and lets the lane go on with it. */
  putBack(name: string, item: T): void {
    const lane = this.#lanes.get(name);
    if (!lane) return this.add(name, item);
    lane.waiting.unshift(item);
    this.#waiting++;
    this.release(name);
  }

  get hasReady(): boolean {
    return this.#ready.size > 0;
  }

  /** How many items were not taken yet. */
  get waiting(): number {
    return this.#waiting;
  }
}
