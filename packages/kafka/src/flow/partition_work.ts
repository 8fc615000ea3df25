import { type Consumer, idempotencyKey, type Place, type Task } from "@khala/server/blackboard";
import type { KafkaRecord } from "../client/client_types.ts";
import { decodeTask } from "../topics/decoding.ts";
import { type Origin, originOf } from "../topics/record_headers.ts";
import { Lanes } from "./lanes.ts";
import type { Marks } from "./marks.ts";
import { OffsetTracker } from "./tracker.ts";

/** A record of a partition that is being worked on. */
export interface Work {
  readonly partition: PartitionWork;
  readonly offset: number;
  readonly record: KafkaRecord;
  /** Missing when the record cannot be read. */
  readonly task?: Task;
  /** Why it cannot be read. */
  readonly error?: string;
}

/** How much of a partition may be in this process. */
export interface PartitionLimits {
  readonly records: number;
  readonly bytes: number;
  /** Between the lowest unfinished record and the newest. */
  readonly span: number;
}

/** The part of an agent's work that came with a partition: from when it was assigned until it is taken away. */
export class PartitionWork {
  readonly topic: string;
  readonly partition: number;
  readonly tracker = new OffsetTracker();
  readonly lanes = new Lanes<Work>();
  /** Aborts when the partition is not this process's any more. */
  readonly lost = new AbortController();
  /** Of each task that runs: aborts with `lost`, unless the task has ended. */
  readonly stops = new Set<AbortController>();
  /** What was settled before; nothing runs until it is loaded. */
  marks: Marks | undefined;
  running = 0;
  paused = false;
  /** Nothing more begins: the partition is about to be taken away. */
  leaving = false;
  /** What is being worked on or settled. */
  readonly #underWay = new Set<number>();
  readonly #idle = Promise.withResolvers<void>();
  readonly #order: Consumer["order"];
  readonly #limits: PartitionLimits;

  constructor(place: Omit<Place, "offset">, order: Consumer["order"], limits: PartitionLimits) {
    this.topic = place.topic;
    this.partition = place.partition;
    this.#order = order;
    this.#limits = limits;
    this.lost.signal.addEventListener("abort", () => {
      for (const stop of this.stops) stop.abort();
    });
  }

  get owned(): boolean {
    return !this.lost.signal.aborted;
  }

  /** A record is being worked on or settled. */
  began({ offset }: Work): void {
    this.#underWay.add(offset);
  }

  ended({ offset }: Work): void {
    this.#underWay.delete(offset);
    if (this.leaving && this.#underWay.size === 0) this.#idle.resolve();
  }

  /** Begins nothing more. Resolves when all that was under way is settled. */
  leave(): Promise<void> {
    this.leaving = true;
    if (this.#underWay.size === 0) this.#idle.resolve();
    return this.#idle.promise;
  }

  /** Takes records, each once. */
  take(records: readonly KafkaRecord[]): void {
    for (const record of records) {
      const offset = Number(record.offset);
      if (!this.tracker.take(offset, record.value?.length ?? 0)) continue;
      const decoded = decodeTask(record);
      const work: Work = decoded.ok
        ? { partition: this, offset, record, task: decoded.value }
        : { partition: this, offset, record, error: decoded.error };
      this.lanes.add(this.laneOf(work), work);
    }
  }

  /** Which of its tasks follow each other. Copies of one task always do, so that only the first of them runs. */
  laneOf({ task, offset }: Work): string {
    if (this.#order === "partition") return "";
    if (!task) return `@${offset}`;
    return this.#order === "key" ? `=${task.key}` : `#${idempotencyKey(task)}`;
  }

  place({ offset }: Work): Place {
    return { topic: this.topic, partition: this.partition, offset: String(offset) };
  }

  origin(work: Work): Origin {
    return originOf(work.record, this.place(work));
  }

  get full(): boolean {
    const { records, bytes, span } = this.#limits;
    return this.tracker.open >= records || this.tracker.bytes >= bytes || this.tracker.span >= span;
  }

  /** Whether there is so much room again that reading on is worth it. */
  get roomy(): boolean {
    const { records, bytes, span } = this.#limits;
    return (
      this.tracker.open <= records / 2 &&
      this.tracker.bytes <= bytes / 2 &&
      this.tracker.span <= Math.max(span / 2, 1)
    );
  }
}
