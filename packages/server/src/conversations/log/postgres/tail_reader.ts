import type { Database } from "../../../database/database.ts";
import type { Context } from "../../../kit/context.ts";
import type { Entry, Position } from "../log.ts";
import type { Watchers } from "../watchers.ts";
import { TAILS } from "./queries.ts";

interface TailRow {
  readonly n: number;
  /** Null for a missing stream. */
  readonly epoch: string | null;
  readonly head: bigint;
  readonly entry: bigint | null;
  readonly at: bigint;
  readonly data: string;
}

const BATCH_STREAMS = 500;
const MAX_ENTRIES = 200;
const MAX_BYTES = 64 << 10;

/** Reads the entries that other processes appended: one query at a time for all streams with pending wakeups. */
export class TailReader {
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

  /** Another process appended to this stream. */
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
    // One message carries many wakeups.
    await new Promise(setImmediate);
    while (this.#waiting.size > 0) {
      const streams = [...this.#waiting].slice(0, BATCH_STREAMS);
      for (const stream of streams) this.#waiting.delete(stream);
      try {
        await this.#read(streams);
      } catch (error) {
        this.#context.log.debug({ err: (error as Error).message }, "could not read entries after a wakeup");
        for (const stream of streams) this.#watchers.missed(stream);
      }
    }
  }

  async #read(streams: readonly string[]): Promise<void> {
    const requests: { stream: string; position: Position }[] = [];
    for (const stream of streams) {
      const position = this.#watchers.position(stream);
      if (position) requests.push({ stream, position });
      else this.#watchers.missed(stream);
    }
    if (requests.length === 0) return;
    const rows = await this.#database.query<TailRow>({
      name: "log_tails",
      text: TAILS,
      values: [
        requests.map(({ stream }) => stream),
        requests.map(({ position }) => position.seq),
        MAX_ENTRIES,
        MAX_BYTES,
        requests.map(({ position }) => position.time),
      ],
    });
    const byStream = Map.groupBy(rows, ({ n }) => n);
    for (const [i, { stream, position }] of requests.entries())
      this.#deliver(stream, position, byStream.get(i + 1) ?? []);
  }

  #deliver(stream: string, position: Position, rows: readonly TailRow[]): void {
    const [first] = rows;
    if (!first || first.epoch === null) return this.#watchers.missed(stream);
    if (first.entry === null) {
      if (first.head !== position.seq) this.#watchers.missed(stream);
      return;
    }
    // Another entry has the position's number: the watchers compare for themselves.
    if (first.entry === position.seq) return this.#watchers.missed(stream);
    const entries: Entry[] = rows.map(({ entry, at, data }) => ({ seq: entry!, time: Number(at), data }));
    this.#watchers.appended(stream, { epoch: first.epoch, entries });
    if (entries.at(-1)!.seq < first.head) this.onWakeup(stream);
  }
}
