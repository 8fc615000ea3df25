import type { Entry, Position } from "../log/log.ts";
import type { TimelineFrame } from "./timeline.ts";

/** An entry with the frame that sockets get for it. */
export interface Framed {
  readonly entry: Entry;
  readonly frame: TimelineFrame;
}

/** The newest entries of a conversation, in memory, bounded in bytes. */
export class Recent {
  readonly #limit: number;
  #items: Framed[] = [];
  /** The position before the first item. */
  #base: Position;
  #bytes = 0;

  constructor(base: Position, limit: number) {
    this.#base = base;
    this.#limit = limit;
  }

  add(item: Framed): void {
    this.#items.push(item);
    this.#bytes += item.frame.json.length;
    if (this.#bytes <= this.#limit) return;
    let gone = 0;
    // To half, so that it is not cut with every entry.
    while (this.#bytes > this.#limit / 2 && gone < this.#items.length)
      this.#bytes -= this.#items[gone++]!.frame.json.length;
    if (gone > 0) this.#base = this.#items[gone - 1]!.entry;
    this.#items = this.#items.slice(gone);
  }

  /** The entries after a position, or undefined when some of them are no longer here. */
  after({ seq, time }: Position): readonly Framed[] | undefined {
    if (seq < this.#base.seq) return undefined;
    const at = Number(seq - this.#base.seq);
    // A store that lost its last moments numbers what comes after them again: this is not the entry that was meant.
    const meant = at > 0 ? this.#items[at - 1]?.entry : this.#base;
    if (!meant || meant.time > time) return undefined;
    return this.#items.slice(at);
  }

  /** Whether another entry had this one's number before. Of what is no longer here, nothing is known. */
  contradicts({ seq, time }: Position): boolean {
    const at = Number(seq - this.#base.seq);
    const known = at === 0 ? this.#base : this.#items[at - 1]?.entry;
    return known !== undefined && known.time !== time;
  }
}
