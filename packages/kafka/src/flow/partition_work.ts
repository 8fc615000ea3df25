import { type Consumer, idempotencyKey, type RecordPosition, type Task } from "@khala/server/blackboard";
import type { KafkaRecord, TopicPartition } from "../client/client_types.ts";
import { decodeTask } from "../topics/decoding.ts";
import { OldestKeys } from "../topics/oldest_keys.ts";
import { type Origin, originOf } from "../topics/record_headers.ts";
import type { TaskStates } from "./processed.ts";

/** A record of a partition that is being processed. */
export interface Work {
  readonly partition: PartitionWork;
  readonly offset: number;
  readonly record: KafkaRecord;
  /** Missing when the record cannot be decoded. */
  readonly task?: Task;
  /** The reason it cannot be decoded. */
  readonly error?: string;
}

/** The limits of a partition in this process. */
export interface PartitionLimits {
  readonly records: number;
  readonly bytes: number;
  /** The distance between the lowest unfinished record and the newest. */
  readonly span: number;
}

/** The work of an agent on a partition, from its assignment until its revocation. */
export class PartitionWork {
  readonly topic: string;
  readonly partition: number;
  readonly tracker = new OffsetTracker();
  readonly lanes = new Lanes<Work>();
  /** Aborts when the partition is revoked. */
  readonly lost = new AbortController();
  /** The signal of each running task: aborts with `lost`, unless the task has ended. */
  readonly stops = new Set<AbortController>();
  /** The states settled before; nothing runs until they are loaded. */
  states: TaskStates | undefined;
  running = 0;
  paused = false;
  /** Whether it starts nothing more: the partition is about to be revoked. */
  leaving = false;
  /** The records being processed or settled. */
  readonly #underWay = new Set<number>();
  readonly #idle = Promise.withResolvers<void>();
  readonly #order: Consumer["order"];
  readonly #limits: PartitionLimits;
  readonly #agent: string;

  constructor(
    { topic, partition }: TopicPartition,
    { agent, order }: Pick<Consumer, "agent" | "order">,
    limits: PartitionLimits,
  ) {
    this.#agent = agent;
    this.topic = topic;
    this.partition = partition;
    this.#order = order;
    this.#limits = limits;
    this.lost.signal.addEventListener("abort", () => {
      for (const stop of this.stops) stop.abort();
    });
  }

  get owned(): boolean {
    return !this.lost.signal.aborted;
  }

  /** Marks a record as being processed or settled. */
  began({ offset }: Work): void {
    this.#underWay.add(offset);
  }

  ended({ offset }: Work): void {
    this.#underWay.delete(offset);
    if (this.leaving && this.#underWay.size === 0) this.#idle.resolve();
  }

  /** Starts nothing more. Resolves when all running work is settled. */
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
      const decoded = decodeTask(record, this.#agent);
      const work: Work = decoded.ok
        ? { partition: this, offset, record, task: decoded.value }
        : { partition: this, offset, record, error: decoded.error };
      this.lanes.add(this.laneOf(work), work);
    }
  }

  /** The lane of a task, separate for each org. Copies of one task share a lane, so that only the first of them runs. */
  laneOf({ task, offset }: Work): string {
    if (!task) return `@${offset}`;
    const [{ org_id }] = task.artifacts;
    if (this.#order === "partition") return org_id;
    // Keys contain no NUL.
    return this.#order === "key" ? `=${task.key}\0${org_id}` : `#${idempotencyKey(task)}`;
  }

  positionOf({ offset }: Work): RecordPosition {
    return { topic: this.topic, partition: this.partition, offset: String(offset) };
  }

  origin(work: Work): Origin {
    return originOf(work.record, this.positionOf(work));
  }

  get full(): boolean {
    const { records, bytes, span } = this.#limits;
    return this.tracker.open >= records || this.tracker.bytes >= bytes || this.tracker.span >= span;
  }

  /** Whether at least half of each limit is free, so that resuming is worth it. */
  get hasRoom(): boolean {
    const { records, bytes, span } = this.#limits;
    return (
      this.tracker.open <= records / 2 &&
      this.tracker.bytes <= bytes / 2 &&
      this.tracker.span <= Math.max(span / 2, 1)
    );
  }
}

interface Entry {
  readonly offset: number;
  readonly bytes: number;
  finished: boolean;
}

/** How many finished entries may be kept, so that the list is not copied for each. */
const KEPT = 256;

/**
 * The records taken from a partition that are not all finished yet. The committed offset never passes an
 * unfinished record, even if later ones are finished. Offsets have gaps, where transaction markers are.
 */
export class OffsetTracker {
  #entries: Entry[] = [];
  /** All entries before this one are finished. */
  #first = 0;
  readonly #open = new Map<number, Entry>();
  #next = -1;
  #bytes = 0;

  /** Takes a record. False for a record taken before: a reader that seeks may deliver it twice. */
  take(offset: number, bytes: number): boolean {
    if (offset < this.#next) return false;
    const entry = { offset, bytes, finished: false };
    this.#entries.push(entry);
    this.#open.set(offset, entry);
    this.#next = offset + 1;
    this.#bytes += bytes;
    return true;
  }

  /** Marks a record as finished. */
  finish(offset: number): void {
    const entry = this.#open.get(offset);
    if (!entry) return;
    entry.finished = true;
    this.#bytes -= entry.bytes;
    this.#open.delete(offset);
    while (this.#entries[this.#first]?.finished) this.#first++;
    if (this.#first < KEPT && this.#first < this.#entries.length) return;
    this.#entries = this.#entries.slice(this.#first);
    this.#first = 0;
  }

  /** The offset for a new owner, if these were finished too. Undefined before the first record. */
  position(also?: ReadonlySet<number>): number | undefined {
    for (let i = this.#first; i < this.#entries.length; i++) {
      const { offset, finished } = this.#entries[i]!;
      if (!finished && !also?.has(offset)) return offset;
    }
    return this.#next < 0 ? undefined : this.#next;
  }

  /** The number of records between the lowest unfinished one and the newest. */
  get span(): number {
    return this.#entries.length - this.#first;
  }

  /** The number of unfinished records. */
  get open(): number {
    return this.#open.size;
  }

  /** The bytes of unfinished records. */
  get bytes(): number {
    return this.#bytes;
  }
}

interface Lane<T> {
  readonly waiting: T[];
  busy: boolean;
}

/** Work in lanes: items of a lane run one after the other, lanes in parallel, oldest first. */
export class Lanes<T> {
  readonly #lanes = new Map<string, Lane<T>>();
  // Lanes with work that are not busy. A Set keeps the order and finds each in constant time.
  readonly #ready = new Set<string>();
  readonly #oldest = new OldestKeys(this.#ready);

  add(name: string, item: T): void {
    let lane = this.#lanes.get(name);
    if (!lane) {
      lane = { waiting: [], busy: false };
      this.#lanes.set(name, lane);
    }
    lane.waiting.push(item);
    if (!lane.busy) this.#ready.add(name);
  }

  /** Takes the next item; its lane is busy until it is released. */
  next(): { readonly lane: string; readonly item: T } | undefined {
    for (let name = this.#oldest.next(); name !== undefined; name = this.#oldest.next()) {
      this.#ready.delete(name);
      const lane = this.#lanes.get(name);
      const item = lane?.waiting.shift();
      if (!lane || item === undefined) continue;
      lane.busy = true;
      return { lane: name, item };
    }
    return undefined;
  }

  /** Frees a lane. */
  release(name: string): void {
    const lane = this.#lanes.get(name);
    if (!lane) return;
    lane.busy = false;
    if (lane.waiting.length > 0) this.#ready.add(name);
    else this.#lanes.delete(name);
  }

  /** Puts an item back at the head of its lane, and frees the lane. */
  putBack(name: string, item: T): void {
    const lane = this.#lanes.get(name);
    if (!lane) return this.add(name, item);
    lane.waiting.unshift(item);
    this.release(name);
  }

  get hasReady(): boolean {
    return this.#ready.size > 0;
  }
}
