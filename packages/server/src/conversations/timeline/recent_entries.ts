import type { Entry, Position } from "../log/log.ts";

/** Layout of an entry: its time, the length of its text, the text. */
const LENGTH_AT = 8;
const TEXT_AT = 12;
const FIRST_BYTES = 1 << 10;

/**
 * The newest entries of a conversation, in memory, limited in bytes. Stored in a Buffer outside the heap: objects that
 * survive a young collection are copied by the garbage collector, which pauses all sockets.
 */
export class RecentEntries {
  readonly #limit: number;
  #bytes = Buffer.alloc(0);
  #used = 0;
  #count = 0;
  /** The position before the first entry. */
  #base: Position;
  /** The parsed entries, shared by clients that reconnect at the same time. */
  #parsed: WeakRef<Entry[]> | undefined;

  constructor(base: Position, limit: number) {
    this.#base = base;
    this.#limit = limit;
  }

  add(entry: Entry): void {
    const length = Buffer.byteLength(entry.data);
    const start = this.#used;
    const end = start + TEXT_AT + length;
    if (end > this.#limit) return this.#evictAndAdd(entry, end - start);
    if (end > this.#bytes.length) this.#grow(end);
    this.#bytes.writeDoubleLE(entry.time, start);
    this.#bytes.writeUInt32LE(length, start + LENGTH_AT);
    this.#bytes.write(entry.data, start + TEXT_AT);
    this.#used = end;
    this.#count++;
    this.#parsed?.deref()?.push(entry);
  }

  /** The entries after a position; undefined when some of them were evicted. */
  after({ seq, time }: Position): readonly Entry[] | undefined {
    if (seq < this.#base.seq) return undefined;
    const at = Number(seq - this.#base.seq);
    // A store that lost its last writes reuses their numbers: then this is another entry. A position has the time of its own
    // entry, or of the one that follows.
    const known = this.#timeOf(at);
    if (known === undefined || known > time) return undefined;
    if (known < time && this.#timeOf(at + 1) !== time) return undefined;
    return at === this.#count ? [] : this.#entries().slice(at);
  }

  /** Whether another entry had this sequence number. Evicted entries are not checked. */
  contradicts({ seq, time }: Position): boolean {
    const known = this.#timeOf(Number(seq - this.#base.seq));
    return known !== undefined && known !== time;
  }

  /** The time of the nth entry, from 1; 0 is the position before the first. */
  #timeOf(n: number): number | undefined {
    if (n === 0) return this.#base.time;
    if (n < 0 || n > this.#count) return undefined;
    let at = 0;
    for (let i = 1; i < n; i++) at = this.#endOf(at);
    return this.#bytes.readDoubleLE(at);
  }

  /** The end of the entry that begins here. */
  #endOf(start: number): number {
    return start + TEXT_AT + this.#bytes.readUInt32LE(start + LENGTH_AT);
  }

  #entries(): Entry[] {
    const known = this.#parsed?.deref();
    if (known) return known;
    const entries: Entry[] = [];
    let { seq } = this.#base;
    for (let at = 0; at < this.#used; ) {
      const end = this.#endOf(at);
      const data = this.#bytes.toString("utf8", at + TEXT_AT, end);
      entries.push({ seq: ++seq, time: this.#bytes.readDoubleLE(at), data });
      at = end;
    }
    this.#parsed = new WeakRef(entries);
    return entries;
  }

  #grow(needed: number): void {
    const size = Math.min(this.#limit, Math.max(needed, this.#bytes.length * 2, FIRST_BYTES));
    const bytes = Buffer.allocUnsafeSlow(size);
    this.#bytes.copy(bytes, 0, 0, this.#used);
    this.#bytes = bytes;
  }

  /** Evicts down to half the limit, so that not every entry evicts. */
  #evictAndAdd(entry: Entry, size: number): void {
    let cut = 0;
    for (; cut < this.#used && this.#used - cut + size > this.#limit / 2; this.#count--) {
      this.#base = { seq: this.#base.seq + 1n, time: this.#bytes.readDoubleLE(cut) };
      cut = this.#endOf(cut);
    }
    this.#bytes.copyWithin(0, cut, this.#used);
    this.#used -= cut;
    this.#parsed = undefined;
    if (this.#used + size <= this.#limit) this.add(entry);
    else this.#base = { seq: entry.seq, time: entry.time };
  }
}
