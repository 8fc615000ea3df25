import { KhalaError } from "@khala/contracts";
import type { Context, Service } from "@khala/server/blackboard";
import { partitionKey } from "../client/client_types.ts";
import type { LogReader, LogRecord, Position } from "./log_reader.ts";

interface Ask extends Position {
  /** The end, exclusive; one record without it. */
  readonly to: number | undefined;
  readonly found: LogRecord[];
  readonly resolve: (records: LogRecord[]) => void;
  readonly reject: (error: unknown) => void;
}

const LIMIT_MS = 10_000;
const BATCH = 500;
const MAX_WAITING = 10_000;

/** Reads records that are not in memory by their position; several at a time, one for each partition. */
export class LogLookup implements Service {
  readonly #context: Pick<Context, "clock">;
  readonly #open: () => Promise<LogReader>;
  readonly #stopping = new AbortController();
  #reader: Promise<LogReader> | undefined;
  #waiting: Ask[] = [];
  #running: Promise<void> | undefined;

  /** `open` returns a reader that hardly waits for further records. */
  constructor(context: Pick<Context, "clock">, open: () => Promise<LogReader>) {
    this.#context = context;
    this.#open = open;
  }

  /** The record at the position, or the next one left in its partition. */
  async record(position: Position): Promise<LogRecord | undefined> {
    return (await this.#ask(position, undefined))[0];
  }

  /** The records from the position up to an offset, exclusive. */
  range(from: Position, to: number): Promise<LogRecord[]> {
    return to > from.offset ? this.#ask(from, to) : Promise.resolve([]);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
    await this.#close();
  }

  /** The next lookup opens another reader. */
  async #close(): Promise<void> {
    const reader = this.#reader;
    this.#reader = undefined;
    // Callers have received the error.
    await (await reader?.catch(() => undefined))?.close();
  }

  #ask(position: Position, to: number | undefined): Promise<LogRecord[]> {
    if (this.#waiting.length >= MAX_WAITING || this.#stopping.signal.aborted)
      return Promise.reject(
        new KhalaError("overloaded", "Too many artifacts are being looked up. Try again.", {
          retry_after_ms: 500,
        }),
      );
    return new Promise((resolve, reject) => {
      this.#waiting.push({ ...position, to, found: [], resolve, reject });
      this.#running ??= this.#run();
    });
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      const asks = this.#take();
      try {
        this.#reader ??= this.#open();
        await this.#answer(await this.#reader, asks);
      } catch (error) {
        for (const ask of asks.values()) ask.reject(error);
        await this.#close();
      }
    }
    // No await between the last check and this, or a lookup that arrives in between would wait for the next one.
    this.#running = undefined;
  }

  /** The first lookup of each partition. */
  #take(): Map<string, Ask> {
    const asks = new Map<string, Ask>();
    this.#waiting = this.#waiting.filter((ask) => {
      const key = partitionKey(ask);
      if (asks.has(key)) return true;
      asks.set(key, ask);
      return false;
    });
    return asks;
  }

  async #answer(reader: LogReader, asks: Map<string, Ask>): Promise<void> {
    const { clock } = this.#context;
    const deadline = clock.now() + LIMIT_MS;
    reader.assign([...asks.values()].map(({ topic, partition, offset }) => ({ topic, partition, offset })));
    const done = (ask: Ask) => {
      asks.delete(partitionKey(ask));
      ask.resolve(ask.found);
    };
    while (asks.size > 0) {
      if (clock.now() >= deadline || this.#stopping.signal.aborted)
        throw new KhalaError("unavailable", "Kafka did not return the record in time. Try again.", {
          retry_after_ms: 1_000,
        });
      const { records, ends } = await reader.poll(BATCH, deadline - clock.now(), this.#stopping.signal);
      for (const record of records) {
        const ask = asks.get(partitionKey(record));
        if (!ask) continue;
        if (ask.to === undefined || record.at < ask.to) ask.found.push(record);
        if (record.at + 1 >= (ask.to ?? 0)) done(ask);
      }
      for (const end of ends) {
        const ask = asks.get(partitionKey(end));
        if (ask) done(ask);
      }
    }
    reader.assign([]);
  }
}
