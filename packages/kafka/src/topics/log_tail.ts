import { KhalaError } from "@khala/contracts";
import { type Context, runLoop, type Service, sleep, Wake } from "@khala/server/blackboard";
import type { TopicPartition } from "../client/client_types.ts";
import type { LogReader, LogRecord, Poll, Position } from "./log_reader.ts";

/** A followed topic, and its listener. */
export interface Source {
  readonly topic: string;
  readonly from: readonly Position[];
  /** Must not throw: it skips or records an undecodable record. */
  readonly onRecord: (record: LogRecord) => void;
}

const BATCH = 1_000;
const POLL_MS = 500;

/** Follows topics, in order within each partition, and knows its positions. */
export class LogTail implements Service {
  readonly #context: Context;
  readonly #open: () => Promise<LogReader>;
  /** Undefined while a reader that lost its brokers is replaced. */
  #reader: LogReader | undefined;
  readonly #sources: ReadonlyMap<string, Source>;
  /** The next offset, by topic and partition. */
  readonly #next = new Map<string, number[]>();
  readonly #advanced = new Set<() => void>();
  readonly #loop: Service;

  /** Opens a reader, and follows. */
  static async open(
    context: Context,
    open: () => Promise<LogReader>,
    sources: readonly Source[],
  ): Promise<LogTail> {
    return new LogTail(context, open, await open(), sources);
  }

  private constructor(
    context: Context,
    open: () => Promise<LogReader>,
    reader: LogReader,
    sources: readonly Source[],
  ) {
    this.#context = context;
    this.#open = open;
    this.#reader = reader;
    this.#sources = new Map(sources.map((source) => [source.topic, source]));
    for (const { topic, from } of sources) {
      const partitions: number[] = [];
      for (const { partition, offset } of from) partitions[partition] = offset;
      this.#next.set(topic, partitions);
    }
    reader.assign(this.#positions());
    this.#loop = runLoop(context, "kafka tail", {
      step: (signal) => this.#step(signal),
      wake: new Wake(),
      idleMs: 1,
    });
  }

  /** The offset up to which everything has been read. */
  next(topic: string, partition: number): number {
    return this.#next.get(topic)?.[partition] ?? 0;
  }

  /** Resolves when everything before these positions has been read. */
  async reached(ends: readonly Position[], limitMs: number): Promise<void> {
    const deadline = this.#context.clock.now() + limitMs;
    while (!ends.every(({ topic, partition, offset }) => this.next(topic, partition) >= offset)) {
      const left = deadline - this.#context.clock.now();
      if (left <= 0)
        throw new KhalaError(
          "unavailable",
          `The log was not read up to its end within ${limitMs} ms. Try again.`,
          {
            retry_after_ms: 1_000,
          },
        );
      await this.#advance(left);
    }
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    await this.#reader?.close();
  }

  async #step(signal: AbortSignal): Promise<boolean> {
    const { records, ends } = await this.#poll(signal);
    for (const record of records) {
      this.#take(record);
      this.#reach(record, record.at + 1);
    }
    for (const end of ends) this.#reach(end, end.offset);
    for (const advanced of [...this.#advanced]) advanced();
    return true;
  }

  /** A record that a view cannot take is skipped: otherwise those behind it would be lost too. */
  #take(record: LogRecord): void {
    try {
      this.#sources.get(record.topic)?.onRecord(record);
    } catch (error) {
      const { topic, partition, offset } = record;
      const err = (error as Error).message;
      this.#context.log.warn({ err, topic, partition, offset }, "a record cannot be read, and is skipped");
    }
  }

  /** Another reader continues where this one failed. */
  async #poll(signal: AbortSignal): Promise<Poll> {
    this.#reader ??= await this.#reopened();
    const reader = this.#reader;
    try {
      return await reader.poll(BATCH, POLL_MS, signal);
    } catch (error) {
      this.#reader = undefined;
      await reader.close();
      throw error;
    }
  }

  async #reopened(): Promise<LogReader> {
    const reader = await this.#open();
    reader.assign(this.#positions());
    return reader;
  }

  #positions(): Position[] {
    return [...this.#next].flatMap(([topic, partitions]) =>
      partitions.map((offset, partition) => ({ topic, partition, offset })),
    );
  }

  #reach({ topic, partition }: TopicPartition, offset: number): void {
    const partitions = this.#next.get(topic);
    if (partitions && offset > (partitions[partition] ?? 0)) partitions[partition] = offset;
  }

  async #advance(ms: number): Promise<void> {
    const done = new AbortController();
    const end = () => done.abort();
    this.#advanced.add(end);
    await sleep(this.#context.clock, ms, done.signal);
    this.#advanced.delete(end);
  }
}
