import type { Entry, Position } from "../log/log.ts";

/** What an entry costs besides its text, about. */
const OVERHEAD = 100;

/**
 * The newest entries of a conversation, in memory, bounded in bytes. Without their frames: what outlives the moment in
 * which it is sent is copied by the garbage collector, while everybody waits.
 */
export class Recent {
  readonly #limit: number;
  #entries: Entry[] = [];
  /** The position before the first entry. */
  #base: Position;
  #bytes = 0;

  constructor(base: Position, limit: number) {
    this.#base = base;
    this.#limit = limit;
  }

  add(entry: Entry): void {
    this.#entries.push(entry);
    this.#bytes += sizeOf(entry);
    if (this.#bytes <= this.#limit) return;
    let gone = 0;
    // To half, so that it is not cut with every entry.
    while (this.#bytes > this.#limit / 2 && gone < this.#entries.length)
      this.#bytes -= sizeOf(this.#entries[gone++]!);
    if (gone > 0) this.#base = this.#entries[gone - 1]!;
    this.#entries = this.#entries.slice(gone);
  }

  /** The entries after a position, or undefined when some of them are no longer here. */
  after({ seq, time }: Position): readonly Entry[] | undefined {
    if (seq < this.#base.seq) return undefined;
    const at = Number(seq - this.#base.seq);
    // A store that lost its last moments numbers what comes after them again: this is not the entry that was meant.
    const meant = at > 0 ? this.#entries[at - 1] : this.#base;
    if (!meant || meant.time > time) return undefined;
    return this.#entries.slice(at);
  }

  /** Whether another entry had this one's number before. Of what is no longer here, nothing is known. */
  contradicts({ seq, time }: Position): boolean {
    const at = Number(seq - this.#base.seq);
    const known = at === 0 ? this.#base : this.#entries[at - 1];
    return known !== undefined && known.time !== time;
  }
}

function sizeOf({ data }: Entry): number {
  return data.length + OVERHEAD;
}
