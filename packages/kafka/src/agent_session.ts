import {
  type BoardObserver,
  type Consumer,
  type Context,
  idempotencyKey,
  sleep,
  type Task,
  Wake,
} from "@khala/server/blackboard";
import type { KafkaSettings } from "./client.ts";
import type { TopicPartition } from "./client_types.ts";
import { type Batch, type Group, joinGroup } from "./group.ts";
import type { Marks } from "./marks.ts";
import { type PartitionLimits, PartitionWork, type Work } from "./partition_work.ts";
import { loadMarks, type MarkSource } from "./processed.ts";
import type { Producers } from "./producers.ts";
import { type Finished, nextAttempt, type Result, type SettlementRules, waitsInPlace } from "./settlement.ts";
import { Settler } from "./settler.ts";
import type { Session } from "./supervised.ts";

/** What the sessions of an agent work with. */
export interface SessionOptions {
  readonly kafka: KafkaSettings;
  readonly producers: Producers;
  readonly observer: BoardObserver;
  readonly rules: SettlementRules;
  readonly groupId: string;
  readonly topic: string;
  readonly readCommitted: boolean;
  readonly sessionTimeoutMs: number;
  readonly limits: PartitionLimits;
  readonly marks: MarkSource;
  /** How long stopping waits for work under way before it is aborted. */
  readonly drainMs: number;
  /** How long a partition that moves to another member waits for its work under way. */
  readonly leaveMs: number;
}

/** Transactions at a time, of different partitions. */
const SETTLERS = 2;
const ABANDONED_MS = 2_000;
/** Records that are taken at a time: so many may be over a partition's limit. */
const BATCH = 250;

/** The work of an agent as one member of its group, until it is stopped or fails. */
export class AgentSession implements Session {
  readonly #context: Context;
  readonly #options: SessionOptions;
  readonly #consumer: Consumer;
  readonly #settlers: readonly Settler[];
  readonly #partitions = new Map<number, PartitionWork>();
  readonly #wake = new Wake();
  readonly #stopping = new AbortController();
  readonly #onFailure: (error: Error) => void;
  readonly #handling = new Set<Promise<void>>();
  #group: Group | undefined;
  #dispatching: Promise<void> | undefined;

  /** `onFailure` hears what makes it impossible to go on. */
  constructor(
    context: Context,
    options: SessionOptions,
    consumer: Consumer,
    onFailure: (error: Error) => void,
  ) {
    this.#context = context;
    this.#onFailure = onFailure;
    this.#options = options;
    this.#consumer = consumer;
    const settler = () =>
      new Settler(context, {
        producers: options.producers,
        rules: options.rules,
        owner: () => this.#group!.owner,
        onSettled: (finished) => this.#settled(finished),
        onFenced: onFailure,
      });
    this.#settlers = Array.from({ length: SETTLERS }, settler);
  }

  get running(): number {
    return this.#handling.size;
  }

  /** Tasks that are settled, and not behind the committed offset yet. */
  get ahead(): number {
    return [...this.#partitions.values()].reduce((sum, { tracker }) => sum + tracker.span - tracker.open, 0);
  }

  /** Joins the group and begins to work. */
  async start(): Promise<void> {
    const { kafka, groupId, topic, readCommitted, sessionTimeoutMs } = this.#options;
    // Who cannot settle takes no task.
    await this.#options.producers.ready();
    this.#group = await joinGroup(this.#context, kafka, {
      groupId,
      topics: [topic],
      readCommitted,
      sessionTimeoutMs,
      batch: BATCH,
      properties: { "queued.max.messages.kbytes": 16_384, "queued.min.messages": 1_000 },
      onAssign: (partitions) => this.#assigned(partitions),
      onRevoke: (partitions, lost) => this.#revoked(partitions, lost),
      onBatch: (batch) => this.#take(batch),
      onFailure: this.#onFailure,
    });
    this.#dispatching = this.#dispatch();
  }

  /** Waits for what is under way, settles it, and leaves the group. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#dispatching;
    const { clock } = this.#context;
    const ended = new AbortController();
    const cancel = clock.after(this.#options.drainMs, () => this.#abandon());
    // Work that goes on elsewhere is not waited for, and what does not heed its signal is left behind.
    const handled = this.#consumer.away ? [] : this.#handling;
    await Promise.race([
      Promise.all(handled).then(() => this.#drained()),
      sleep(clock, this.#options.drainMs + ABANDONED_MS, ended.signal),
    ]);
    ended.abort();
    cancel();
    this.#abandon();
    await this.#close();
  }

  /** Drops everything: nothing of it is settled. */
  async discard(): Promise<void> {
    this.#stopping.abort();
    this.#abandon();
    for (const settler of this.#settlers) settler.stop();
    await this.#dispatching;
    await this.#drained();
    await this.#close();
  }

  async #close(): Promise<void> {
    await this.#group?.leave();
  }

  async #drained(): Promise<void> {
    await Promise.all(this.#settlers.map((settler) => settler.drained()));
  }

  #abandon(): void {
    for (const partition of this.#partitions.values()) partition.lost.abort();
  }

  #assigned(partitions: readonly TopicPartition[]): void {
    const fresh = partitions.map(
      ({ topic, partition }) =>
        new PartitionWork({ topic, partition }, this.#consumer.order, this.#options.limits),
    );
    for (const work of fresh) this.#partitions.set(work.partition, work);
    if (fresh.length === 0) return;
    // Records are taken meanwhile; they run when it is known which of them were settled.
    this.#load(fresh).catch(this.#onFailure);
  }

  async #load(fresh: readonly PartitionWork[]): Promise<void> {
    const numbers = fresh.map(({ partition }) => partition);
    const { marks, rules } = this.#options;
    const loaded = await loadMarks(this.#context, marks, rules.agent, numbers, this.#stopping.signal);
    if (this.#stopping.signal.aborted) return;
    for (const work of fresh) work.marks = loaded.get(work.partition)!;
    this.#wake.wake();
  }

  /**
   * The partitions stay this member's until this resolves, unless they are lost: what is under way may end, and
   * nothing more begins. What takes too long is aborted, and runs again elsewhere.
   */
  async #revoked(partitions: readonly TopicPartition[], lost: boolean): Promise<void> {
    const leaving = partitions.flatMap(({ partition }) => this.#partitions.get(partition) ?? []);
    const idle = Promise.all(leaving.map((work) => work.leave()));
    if (!lost && !this.#consumer.away) {
      const late = new AbortController();
      const over = sleep(this.#context.clock, this.#options.leaveMs, late.signal);
      await Promise.race([idle, over]);
      late.abort();
    }
    for (const work of leaving) {
      work.lost.abort();
      this.#partitions.delete(work.partition);
    }
    await Promise.all(this.#settlers.map((settler) => settler.quiet()));
  }

  #take({ partition, records }: Batch): void {
    const work = this.#partitions.get(partition);
    // What was taken away comes again to its new owner.
    if (!work || work.leaving) return;
    work.take(records);
    if (work.full && !work.paused) {
      work.paused = true;
      this.#group?.pause(work);
    }
    this.#wake.wake();
  }

  async #dispatch(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const next = this.#handling.size < this.#consumer.concurrency ? this.#next() : undefined;
      if (!next) {
        await this.#wake.wait(this.#context, 1_000, signal);
        continue;
      }
      await this.#consumer.gate(signal);
      if (signal.aborted || !next.partition.owned || next.partition.leaving) continue;
      this.#begin(next);
    }
  }

  /** The next task that may run, from the partition that has the fewest running: a heavy one gets its fair share. */
  #next(): (Work & { readonly task: Task; readonly marks: Marks }) | undefined {
    for (;;) {
      const [partition] = [...this.#partitions.values()]
        .filter(({ marks, lanes, leaving }) => marks && lanes.hasReady && !leaving)
        .sort((one, other) => one.running - other.running);
      const work = partition?.lanes.next()?.item;
      if (!work || !partition?.marks) return undefined;
      const { task } = work;
      if (!task) {
        this.#submit({ work, result: { kind: "unreadable" } });
        continue;
      }
      const mark = partition.marks.get(idempotencyKey(task));
      if (mark?.kind === "settled") {
        this.#submit({ work, result: { kind: "repeated" } });
        continue;
      }
      if (mark?.kind === "waits" && mark.attempt > task.attempt) {
        this.#wait({ ...work, task: { ...task, attempt: mark.attempt } }, mark.dueAt);
        continue;
      }
      return { ...work, task, marks: partition.marks };
    }
  }

  #begin(work: Work & { readonly task: Task }): void {
    const { partition, task } = work;
    partition.running++;
    partition.began(work);
    // Its own, so that what has ended is not told of what becomes of the partition later.
    const aborting = new AbortController();
    const abort = () => aborting.abort();
    partition.lost.signal.addEventListener("abort", abort, { once: true });
    const handling = this.#consumer
      .handle(task, aborting.signal)
      .then((result) => this.#submit({ work, result }), this.#onFailure);
    this.#handling.add(handling);
    void handling.then(() => {
      partition.lost.signal.removeEventListener("abort", abort);
      partition.running--;
      this.#handling.delete(handling);
      this.#wake.wake();
    });
  }

  #submit(finished: Finished): void {
    const { partition } = finished.work;
    partition.began(finished.work);
    // Always the same one for a partition, so that its offsets follow each other.
    this.#settlers[partition.partition % SETTLERS]!.submit(finished);
  }

  #settled({ work, result }: Finished): void {
    const { partition, task } = work;
    const { observer, rules } = this.#options;
    partition.ended(work);
    if (partition.owned) this.#goOn(work, result);
    this.#wake.wake();
    if (!task || result.kind === "unreadable") return;
    if (result.kind === "repeated") return observer.repeated(task);
    if (result.kind === "done") rules.wrote(result.outputs);
    observer.settled(task, result, partition.place(work));
  }

  #goOn(work: Work, result: Result): void {
    const { partition, task } = work;
    if (task && result.kind === "retry" && waitsInPlace(result, this.#options.rules)) {
      const next = nextAttempt(task);
      const dueAt = this.#context.clock.now() + result.delayMs;
      partition.marks?.set(idempotencyKey(task), { kind: "waits", attempt: next.attempt, dueAt });
      return this.#wait({ ...work, task: next }, dueAt);
    }
    if (task && (result.kind === "done" || result.kind === "dead"))
      partition.marks?.set(idempotencyKey(task), { kind: "settled" });
    partition.tracker.finish(work.offset);
    partition.lanes.release(partition.laneOf(work));
    if (partition.paused && partition.roomy) {
      partition.paused = false;
      this.#group?.resume(partition);
    }
  }

  /** Keeps a task in its place until it is due; its lane with it, where its key must wait. */
  #wait(work: Work, dueAt: number): void {
    const { partition } = work;
    const lane = partition.laneOf(work);
    const { strict } = this.#options.rules;
    if (!strict) partition.lanes.release(lane);
    const cancel = this.#context.clock.after(Math.max(0, dueAt - this.#context.clock.now()), () => {
      partition.lost.signal.removeEventListener("abort", cancel);
      if (strict) partition.lanes.putBack(lane, work);
      else partition.lanes.add(lane, work);
      this.#wake.wake();
    });
    partition.lost.signal.addEventListener("abort", cancel, { once: true });
  }
}
