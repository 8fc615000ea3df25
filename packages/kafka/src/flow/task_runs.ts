import {
  type BoardObserver,
  type Consumer,
  type Context,
  idempotencyKey,
  type Settlement,
  type Task,
  Wake,
} from "@khala/server/blackboard";
import type { OffsetOwner, TopicPartition } from "../client/client_types.ts";
import type { Producers } from "../producers/producers.ts";
import type { PartitionWork, Work } from "./partition_work.ts";
import type { TaskStates } from "./processed.ts";
import { type Finished, nextAttempt, type Result, type SettlementRules, waitsInPlace } from "./settlement.ts";
import { type Settled, Settler } from "./settler.ts";

/** The dependencies of an agent's task runs. */
export interface TaskRunsOptions {
  readonly consumer: Consumer;
  readonly producers: Producers;
  readonly observer: BoardObserver;
  readonly rules: SettlementRules;
  /** The partitions assigned to this member. */
  partitions(): Iterable<PartitionWork>;
  /** The group member whose offsets are settled. */
  owner(): OffsetOwner;
  /** A partition has room for more records. */
  resume(partition: TopicPartition): void;
  /** A failure that ends the session. */
  onFailure(error: Error): void;
}

/** Transactions at a time, of different partitions. */
const SETTLERS = 2;

/** Runs the tasks of a member's partitions in their order, and settles the results. */
export class TaskRuns {
  readonly #context: Context;
  readonly #options: TaskRunsOptions;
  readonly #settlers: readonly Settler[];
  readonly #wake = new Wake();
  readonly #handling = new Set<Promise<void>>();

  constructor(context: Context, options: TaskRunsOptions) {
    this.#context = context;
    this.#options = options;
    const { producers, rules, owner, onFailure } = options;
    const onSettled = (settled: Settled) => this.#settled(settled);
    this.#settlers = Array.from(
      { length: SETTLERS },
      () => new Settler(context, { producers, rules, owner, onSettled, onFenced: onFailure }),
    );
  }

  /** Tasks under way. */
  get running(): number {
    return this.#handling.size;
  }

  /** Checks for tasks to run. */
  wake(): void {
    this.#wake.wake();
  }

  /** Resolves when the running tasks have ended; they may not be settled yet. */
  async handled(): Promise<void> {
    await Promise.all(this.#handling);
  }

  /** Resolves when all ended tasks are settled, or cannot be. */
  async drained(): Promise<void> {
    await Promise.all(this.#settlers.map((settler) => settler.drained()));
  }

  /** Resolves when no transaction is open. */
  async idle(): Promise<void> {
    await Promise.all(this.#settlers.map((settler) => settler.idle()));
  }

  /** Settles nothing more. */
  stopSettling(): void {
    for (const settler of this.#settlers) settler.stop();
  }

  /** Begins tasks until the signal aborts. */
  async dispatch(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const next = this.#handling.size < this.#options.consumer.concurrency ? this.#next() : undefined;
      if (!next) {
        await this.#wake.wait(this.#context, 1_000, signal);
        continue;
      }
      await this.#options.consumer.gate(signal);
      if (signal.aborted || !next.partition.owned || next.partition.leaving) continue;
      this.#begin(next);
    }
  }

  /** The next task that may run, from the partition that has the fewest running: a heavy one gets its fair share. */
  #next(): (Work & { readonly task: Task; readonly states: TaskStates }) | undefined {
    for (;;) {
      const partition = this.#idlest();
      const work = partition?.lanes.next()?.item;
      if (!work || !partition?.states) return undefined;
      const { task } = work;
      if (!task) {
        this.#submit({ work, result: { kind: "unreadable" } });
        continue;
      }
      const state = partition.states.get(idempotencyKey(task));
      if (state?.kind === "settled") {
        this.#submit({ work, result: { kind: "repeated" } });
        continue;
      }
      if (state?.kind === "waits" && state.attempt > task.attempt) {
        this.#wait({ ...work, task: { ...task, attempt: state.attempt } }, state.dueAt);
        continue;
      }
      return { ...work, task, states: partition.states };
    }
  }

  #idlest(): PartitionWork | undefined {
    let idlest: PartitionWork | undefined;
    for (const partition of this.#options.partitions()) {
      if (!partition.states || !partition.lanes.hasReady || partition.leaving) continue;
      if (!idlest || partition.running < idlest.running) idlest = partition;
    }
    return idlest;
  }

  #begin(work: Work & { readonly task: Task }): void {
    const { partition, task } = work;
    partition.running++;
    partition.began(work);
    // Its own signal, so that an ended task does not see the partition's later abort.
    const stop = new AbortController();
    partition.stops.add(stop);
    // A synchronous throw is a failure like any other, and must not end the dispatch.
    const handling = new Promise<Settlement>((resolve) =>
      resolve(this.#options.consumer.handle(task, stop.signal)),
    ).then((result) => this.#submit({ work, result }), this.#options.onFailure);
    this.#handling.add(handling);
    void handling.then(() => {
      partition.stops.delete(stop);
      partition.running--;
      this.#handling.delete(handling);
      this.#wake.wake();
    });
  }

  #submit(finished: Finished): void {
    const { partition } = finished.work;
    partition.began(finished.work);
    // Always the same producer for a partition, so that its offsets stay in order.
    this.#settlers[partition.partition % SETTLERS]!.submit(finished);
  }

  #settled({ work, result, published, transactionId }: Settled): void {
    const { partition, task } = work;
    const { observer, rules } = this.#options;
    partition.ended(work);
    if (partition.owned) this.#advance(work, result);
    this.#wake.wake();
    if (!task || result.kind === "unreadable") return observer.unreadable?.(rules.agent);
    if (result.kind === "repeated") return observer.repeated(task);
    for (const output of published) rules.wrote(output);
    if (published.length > 0) observer.published(published);
    const position = partition.positionOf(work);
    observer.settled(task, result, transactionId === undefined ? position : { ...position, transactionId });
  }

  #advance(work: Work, result: Result): void {
    const { partition, task } = work;
    if (task && result.kind === "retry" && waitsInPlace(result, this.#options.rules)) {
      const next = nextAttempt(task, result);
      const dueAt = this.#context.clock.now() + result.delayMs;
      partition.states?.set(idempotencyKey(task), { kind: "waits", attempt: next.attempt, dueAt });
      return this.#wait({ ...work, task: next }, dueAt);
    }
    if (task && (result.kind === "done" || result.kind === "dead"))
      partition.states?.set(idempotencyKey(task), { kind: "settled" });
    partition.tracker.finish(work.offset);
    partition.lanes.release(partition.laneOf(work));
    if (partition.paused && partition.hasRoom) {
      partition.paused = false;
      this.#options.resume(partition);
    }
  }

  /** Keeps a task in place until it is due; its lane too, where its key must wait. */
  #wait(work: Work, dueAt: number): void {
    const { partition } = work;
    const lane = partition.laneOf(work);
    const { strict } = this.#options.rules;
    if (!strict) partition.lanes.release(lane);
    const delayMs = Math.max(0, dueAt - this.#context.clock.now());
    const cancel = this.#context.clock.after(delayMs, () => {
      partition.lost.signal.removeEventListener("abort", cancel);
      if (strict) partition.lanes.putBack(lane, work);
      else partition.lanes.add(lane, work);
      this.#wake.wake();
    });
    partition.lost.signal.addEventListener("abort", cancel, { once: true });
  }
}
