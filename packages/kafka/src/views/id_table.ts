import { hash } from "node:crypto";

/** The position of an artifact's newest version. */
export interface Entry {
  readonly partition: number;
  readonly offset: number;
  readonly version: number;
  readonly bytes: number;
}

const FREE = 0;
const REMOVED = 0xffff;
const MAX_LOAD = 0.7;

/** Positions by key in 34 bytes each, so that a process can know of millions: a hash table with open addressing. */
export class IdTable {
  #slots: number;
  #ids: Uint32Array;
  #offsets: Float64Array;
  #versions: Uint32Array;
  #sizes: Uint32Array;
  /** The partition plus one. */
  #places: Uint16Array;
  #live = 0;
  #used = 0;
  readonly #id = new Uint32Array(4);

  constructor(slots = 1_024) {
    this.#slots = slots;
    this.#ids = new Uint32Array(slots * 4);
    this.#offsets = new Float64Array(slots);
    this.#versions = new Uint32Array(slots);
    this.#sizes = new Uint32Array(slots);
    this.#places = new Uint16Array(slots);
  }

  get size(): number {
    return this.#live;
  }

  get bytes(): number {
    return this.#slots * 34;
  }

  get(key: string | Buffer): Entry | undefined {
    this.#read(key);
    const slot = this.#find();
    if (slot < 0) return undefined;
    return {
      partition: this.#places[slot]! - 1,
      offset: this.#offsets[slot]!,
      version: this.#versions[slot]!,
      bytes: this.#sizes[slot]!,
    };
  }

  set(key: string | Buffer, { partition, offset, version, bytes }: Entry): void {
    if (this.#used + 1 > this.#slots * MAX_LOAD) this.#grow();
    this.#read(key);
    let slot = this.#find();
    if (slot < 0) {
      slot = ~slot;
      if (this.#places[slot] === FREE) this.#used++;
      this.#live++;
      this.#ids.set(this.#id, slot * 4);
    }
    this.#places[slot] = partition + 1;
    this.#offsets[slot] = offset;
    this.#versions[slot] = version;
    this.#sizes[slot] = bytes;
  }

  delete(key: string | Buffer): void {
    this.#read(key);
    const slot = this.#find();
    if (slot < 0) return;
    this.#places[slot] = REMOVED;
    this.#live--;
  }

  /** The slot of `#id`, or the complement of the one it would get. */
  #find(): number {
    const a = this.#id[0]!;
    const b = this.#id[1]!;
    const c = this.#id[2]!;
    const d = this.#id[3]!;
    const mask = this.#slots - 1;
    let vacant = -1;
    for (let slot = mix(a ^ b ^ c ^ d) & mask; ; slot = (slot + 1) & mask) {
      const place = this.#places[slot]!;
      if (place === FREE) return ~(vacant < 0 ? slot : vacant);
      if (place === REMOVED) {
        if (vacant < 0) vacant = slot;
        continue;
      }
      const at = slot * 4;
      const ids = this.#ids;
      if (ids[at] === a && ids[at + 1] === b && ids[at + 2] === c && ids[at + 3] === d) return slot;
    }
  }

  #grow(): void {
    const old = {
      slots: this.#slots,
      ids: this.#ids,
      offsets: this.#offsets,
      versions: this.#versions,
      sizes: this.#sizes,
      places: this.#places,
    };
    // Only removed entries may be in the way.
    const next = new IdTable(this.#live > old.slots * (MAX_LOAD / 2) ? old.slots * 2 : old.slots);
    for (let slot = 0; slot < old.slots; slot++) {
      const place = old.places[slot]!;
      if (place === FREE || place === REMOVED) continue;
      next.#id.set(old.ids.subarray(slot * 4, slot * 4 + 4));
      const to = ~next.#find();
      next.#ids.set(next.#id, to * 4);
      next.#offsets[to] = old.offsets[slot]!;
      next.#versions[to] = old.versions[slot]!;
      next.#sizes[to] = old.sizes[slot]!;
      next.#places[to] = place;
    }
    this.#slots = next.#slots;
    this.#ids = next.#ids;
    this.#offsets = next.#offsets;
    this.#versions = next.#versions;
    this.#sizes = next.#sizes;
    this.#places = next.#places;
    this.#used = this.#live;
  }

  /** Puts 128 bits of the key's hash into `#id`: nobody can find a key that has those of another. */
  #read(key: string | Buffer): void {
    const bytes = hash("sha256", key, "buffer");
    for (let i = 0; i < 4; i++) this.#id[i] = bytes.readUInt32BE(i * 4);
  }
}

function mix(value: number): number {
  let mixed = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
