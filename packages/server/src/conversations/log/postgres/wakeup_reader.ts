import type { Database } from "../../../database/database.ts";
import type { Context } from "../../../kit/context.ts";
import type { Entry, Position } from "../log.ts";
import type { Watchers } from "../watchers.ts";
import { NEWS } from "./queries.ts";

interface NewsRow {
  readonly n: number;
  /** Null when there is no such stream. */
  readonly epoch: string | null;
  readonly head: bigint;
  readonly entry: bigint | null;
  readonly at: bigint;
  readonly data: string;
}

const STREAMS_AT_ONCE = 500;
const ENTRIES_EACH = 200;
const BYTES_EACH = 64 << 10;

/** Reads what other processes wrote, for all streams that they told of at once: one read at a time, however many wakeups come. */
export class WakeupReader {
  readonly #database: Database;
  readonly #context: Context;
  readonly #watchers: Watchers;
  readonly #waiting = new Set<string>();
  #running: Promise<void> | undefined;

  constructor(database: Database, context: Context, watchers: Watchers) {
    this.#database = database;
    this.#context = context;
    this.#watchers = watchers;
  }

  /** Another process wrote to this stream. */
  onWakeup(stream: string): void {
    if (!this.#watchers.has(stream)) return;
    this.#waiting.add(stream);
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
  }

  async drain(): Promise<void> {
    this.#waiting.clear();
    await this.#running;
  }

  async #run(): Promise<void> {
    // Wakeups come many in a message.
    await new Promise(setImmediate);
    while (this.#waiting.size > 0) {
      const streams = [...this.#waiting].slice(0, STREAMS_AT_ONCE);
      for (const stream of streams) this.#waiting.delete(stream);
      try {
        await this.#read(streams);
      } catch (error) {
        this.#context.log.debug(
          { err: (error as Error).message },
          "news announced by a wakeup was not read at once",
        );
        for (const stream of streams) this.#watchers.missed(stream);
      }
    }
  }

  async #read(streams: readonly string[]): Promise<void> {
    const known: { stream: string; position: Position }[] = [];
    for (const stream of streams) {
      const position = this.#watchers.position(stream);
      if (position) known.push({ stream, position });
      else this.#watchers.missed(stream);
    }
    if (known.length === 0) return;
    const rows = await this.#database.query<NewsRow>({
      name: "log_news",
      text: NEWS,
      values: [
        known.map(({ stream }) => stream),
        known.map(({ position }) => position.seq),
        ENTRIES_EACH,
        BYTES_EACH,
      ],
    });
    const byStream = Map.groupBy(rows, ({ n }) => n);
    for (const [i, { stream, position }] of known.entries())
      this.#tell(stream, position, byStream.get(i + 1) ?? []);
  }

  #tell(stream: string, position: Position, rows: readonly NewsRow[]): void {
    const [first] = rows;
    if (!first || first.epoch === null) return this.#watchers.missed(stream);
    if (first.entry === null) {
      if (first.head !== position.seq) this.#watchers.missed(stream);
      return;
    }
    const entries: Entry[] = rows.map(({ entry, at, data }) => ({ seq: entry!, time: Number(at), data }));
    this.#watchers.news(stream, { epoch: first.epoch, entries });
    if (entries.at(-1)!.seq < first.head) this.onWakeup(stream);
  }
}
