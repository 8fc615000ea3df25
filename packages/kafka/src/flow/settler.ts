import { KhalaError } from "@khala/contracts";
import { type Artifact, backoff, type Context, sleep } from "@khala/server/blackboard";
import type { OffsetOwner, TopicOffsets } from "../client/client_types.ts";
import type { Producers } from "../producers/producers.ts";
import { type Outgoing, refuseLarge, sizeOf } from "../topics/records.ts";
import { type Finished, freshOutputs, offsetsOf, recordsOf, type SettlementRules } from "./settlement.ts";

/** The dependencies of a settler. */
export interface SettlerOptions {
  readonly producers: Producers;
  readonly rules: SettlementRules;
  /** The group member whose offsets are settled. */
  owner(): OffsetOwner;
  /** Called when a result is durable. */
  onSettled(settled: Settled): void;
  /** Called when another process has taken over, or the brokers gave this one up: nothing can be settled. */
  onFenced(error: Error): void;
}

const MAX_BATCH = 1_000;
const MAX_BYTES = 8 * 1_048_576;

/** A result that is durable. */
export interface Settled extends Finished {
  /** The outputs published with it. */
  readonly published: readonly Artifact[];
  /** Undefined without transactions. */
  readonly transactionId: string | undefined;
}

/** A result and its records. */
interface Written extends Omit<Settled, "transactionId"> {
  readonly records: readonly Outgoing[];
}

/**
 * Settles what is finished, one transaction after the other: outputs, states, retries and dead letters together with
 * the offsets of their partitions, or nothing at all. What comes meanwhile shares the next one.
 */
export class Settler {
  readonly #context: Context;
  readonly #options: SettlerOptions;
  #queue: Finished[] = [];
  #running: Promise<void> | undefined;
  #open: Promise<unknown> | undefined;
  #batch = MAX_BATCH;
  readonly #stopping = new AbortController();

  constructor(context: Context, options: SettlerOptions) {
    this.#context = context;
    this.#options = options;
  }

  submit(finished: Finished): void {
    this.#queue.push(finished);
    this.#running ??= this.#run();
  }

  /** Resolves when no transaction is open. Later transactions do not contain partitions revoked before. */
  async idle(): Promise<void> {
    await this.#open?.catch(() => {});
  }

  /** Resolves when everything submitted is settled, or cannot be. */
  async drained(): Promise<void> {
    while (this.#running) await this.#running;
  }

  /** Drops everything not settled yet. */
  stop(): void {
    this.#stopping.abort();
    this.#queue = [];
  }

  async #run(): Promise<void> {
    // Tasks that end in the same turn of the event loop share a transaction.
    await new Promise(setImmediate);
    let failures = 0;
    while (this.#queue.length > 0 && !this.#stopping.signal.aborted) {
      this.#queue = this.#queue.filter(({ work }) => work.partition.owned);
      const batch = this.#nextBatch();
      if (batch.length === 0) continue;
      const error = await this.#attempt(batch);
      if (error) await this.#failed(error, batch, failures++);
      else failures = 0;
    }
    // No await between the last check and this, or a later submission would wait for ever.
    this.#running = undefined;
  }

  #nextBatch(): Written[] {
    const batch: Written[] = [];
    let bytes = 0;
    for (const finished of this.#queue.slice(0, this.#batch)) {
      const written = this.#written(finished);
      bytes += written.records.reduce((sum, { record }) => sum + sizeOf(record), 0);
      if (batch.length > 0 && bytes > MAX_BYTES) break;
      batch.push(written);
    }
    return batch;
  }

  /** Turns a result that cannot be written into a dead letter with the bytes read, as it would block its partition. */
  #written(finished: Finished): Written {
    const { rules } = this.#options;
    const { work, result } = finished;
    try {
      const published = freshOutputs(rules, result);
      const records = recordsOf(this.#context, rules, finished, published);
      if (result.kind !== "done") refuseLarge(records, rules.maxTaskBytes);
      return { ...finished, published, records };
    } catch (error) {
      const unreadable = { work, result: { kind: "unreadable", error: (error as Error).message } } as const;
      const records = recordsOf(this.#context, rules, unreadable, []);
      return { ...unreadable, published: [], records };
    }
  }

  async #attempt(batch: readonly Written[]): Promise<Error | undefined> {
    let transactionId: string | undefined;
    try {
      const settling = this.#settle(batch);
      this.#open = settling;
      transactionId = await settling;
    } catch (error) {
      return error as Error;
    } finally {
      this.#open = undefined;
    }
    this.#batch = Math.min(MAX_BATCH, this.#batch * 2);
    this.#queue = this.#queue.slice(batch.length);
    for (const { work, result, published } of batch)
      this.#options.onSettled({ work, result, published, transactionId });
    return undefined;
  }

  /** Returns the id of the transaction. */
  #settle(batch: readonly Written[]): Promise<string | undefined> {
    const { producers, rules, owner } = this.#options;
    return producers.transaction(async (transaction) => {
      // Not awaited: the commit waits for it, and fails with it.
      void transaction.send(batch.flatMap(({ records }) => records));
      const offsets = offsetsOf(batch, rules);
      const lost = [...offsets.keys()].some((partition) => !partition.owned);
      if (lost) throw new KhalaError("lease_lost", "The partition was revoked, so the task was not settled.");
      // Names every partition of the batch, even if its offset does not move: the group's generation is checked with it.
      await transaction.sendOffsets(owner(), byTopic(offsets));
      return transaction.id;
    });
  }

  async #failed(error: Error, batch: readonly Finished[], failures: number): Promise<void> {
    const { log, clock, random } = this.#context;
    if (error instanceof KhalaError && error.code === "stale_producer") {
      this.stop();
      this.#options.onFenced(error);
      return;
    }
    log.warn({ err: error.message, tasks: batch.length }, "a settlement failed and will be tried again");
    const [only] = batch;
    if (error instanceof KhalaError && error.code === "payload_too_large" && batch.length === 1 && only)
      this.#queue[0] = tooLarge(only, error);
    // One at a time, so that one that cannot be written does not fail the others.
    this.#batch = 1;
    await sleep(clock, backoff(failures, random, { base: 20, cap: 2_000 }), this.#stopping.signal);
  }
}

/** The agent's output does not fit into a record; the task itself did. */
function tooLarge({ work, result }: Finished, error: Error): Finished {
  if (result.kind !== "done") return { work, result };
  const failure = { class: "PayloadTooLarge", message: error.message, kind: "fatal" } as const;
  return { work, result: { kind: "dead", failure } };
}

function byTopic(offsets: ReturnType<typeof offsetsOf>): TopicOffsets[] {
  const topics = Map.groupBy(offsets, ([{ topic }]) => topic);
  return [...topics].map(([topic, partitions]) => ({
    topic,
    partitions: partitions.map(([{ partition }, { offset }]) => ({ partition, offset })),
  }));
}
