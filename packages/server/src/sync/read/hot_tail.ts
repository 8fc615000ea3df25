import type { EncodedUpdate } from "./update_codec.ts";

/** The newest rows of a topic, encoded, within a byte limit. Watermarks are dense, so a position is an index. */
export class HotTail {
  readonly #maxBytes: number;
  #rows: (EncodedUpdate | undefined)[] = [];
  #skipped = 0;
  #bytes = 0;
  #base: bigint;

  /** Starts empty at a position. */
  constructor(position: bigint, maxBytes: number) {
    this.#base = position;
    this.#maxBytes = maxBytes;
  }

  /** The lowest position that can be continued from memory. */
  get base(): bigint {
    return this.#base + BigInt(this.#skipped);
  }

  /** The newest watermark. */
  get head(): bigint {
    return this.#base + BigInt(this.#rows.length);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Adds the rows that follow the head. */
  append(rows: readonly EncodedUpdate[]): void {
    for (const row of rows) {
      this.#rows.push(row);
      this.#bytes += row.bytes;
    }
    while (this.#bytes > this.#maxBytes && this.#skipped < this.#rows.length) {
      this.#bytes -= this.#rows[this.#skipped]!.bytes;
      this.#rows[this.#skipped++] = undefined;
    }
    // The places of forgotten rows are dropped in blocks: moving the array for each one would cost more than keeping it.
    if (this.#skipped > 1_024 && this.#skipped * 2 > this.#rows.length) {
      this.#rows = this.#rows.slice(this.#skipped);
      this.#base += BigInt(this.#skipped);
      this.#skipped = 0;
    }
  }

  /** The rows after a position that is in memory, oldest first. */
  *after(position: bigint): Generator<EncodedUpdate> {
    for (let i = Number(position - this.#base); i < this.#rows.length; i++) yield this.#rows[i]!;
  }
}
