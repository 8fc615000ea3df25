import {
  type BoardObserver,
  type Consumer,
  type Context,
  type Service,
  withTimeout,
} from "@khala/server/blackboard";
import type { TopicPartition } from "../client/client_types.ts";
import { type Batch, type Group, joinGroup, type Membership } from "../client/group.ts";
import type { Producers } from "../producers/producers.ts";
import type { Position } from "../topics/log_reader.ts";
import { type PartitionLimits, PartitionWork } from "./partition_work.ts";
import { loadTaskStates, type ProcessedSource } from "./processed.ts";
import type { SettlementRules } from "./settlement.ts";
import { type Session, supervise } from "./supervise.ts";
import { TaskRuns } from "./task_runs.ts";

/** The dependencies of an agent's sessions. */
export interface SessionOptions {
  readonly membership: Membership;
  readonly producers: Producers;
  readonly observer: BoardObserver;
  readonly rules: SettlementRules;
  readonly groupId: string;
  readonly topic: string;
  readonly limits: PartitionLimits;
  readonly processed: ProcessedSource;
  /** How long stopping waits for running work before it aborts it. */
  readonly drainMs: number;
  /** How long a partition that moves to another member waits for its running work. */
  readonly leaveMs: number;
}

const ABANDONED_MS = 1_000;
/** Records taken at a time. A partition may exceed its limit by this number. */
const BATCH = 250;

/** The work of an agent as one member of its group, until it is stopped or fails. */
export class AgentSession implements Session {
  readonly #context: Context;
  readonly #options: SessionOptions;
  readonly #consumer: Consumer;
  readonly #runs: TaskRuns;
  readonly #partitions = new Map<number, PartitionWork>();
  readonly #stopping = new AbortController();
  readonly #onFailure: (error: Error) => void;
  #group: Group | undefined;
  #dispatching: Promise<void> | undefined;

  /** `onFailure` gets the error that ends the session. */
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
    const { producers, observer, rules } = options;
    this.#runs = new TaskRuns(context, {
      consumer,
      producers,
      observer,
      rules,
      partitions: () => this.#partitions.values(),
      owner: () => this.#group!.owner,
      resume: (partition) => this.#group?.resume(partition),
      onFailure,
    });
  }

  get running(): number {
    return this.#runs.running;
  }

  /** Settled tasks that the committed offset has not passed yet. */
  get ahead(): number {
    return [...this.#partitions.values()].reduce((sum, { tracker }) => sum + tracker.span - tracker.open, 0);
  }

  /** Joins the group and begins to work. */
  async start(): Promise<void> {
    const { membership, groupId, topic } = this.#options;
    // Without a producer nothing could be settled.
    await this.#options.producers.ready();
    this.#group = await joinGroup(this.#context, membership, {
      groupId,
      topics: [topic],
      batch: BATCH,
      properties: { "queued.max.messages.kbytes": 16_384, "queued.min.messages": 1_000 },
      onAssign: (positions) => this.#assigned(positions),
      onRevoke: (partitions, lost) => this.#revoked(partitions, lost),
      onBatches: (batches) => {
        for (const batch of batches) this.#take(batch);
      },
      onFailure: this.#onFailure,
    });
    this.#dispatching = this.#runs.dispatch(this.#stopping.signal);
  }

  /** Waits for running tasks, settles them, and leaves the group. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#dispatching;
    const { clock } = this.#context;
    const { drainMs } = this.#options;
    const cancel = clock.after(drainMs, () => this.#abandon());
    // Does not wait for remote work, nor for work that ignores its signal.
    const handled = this.#consumer.away ? Promise.resolve() : this.#runs.handled();
    const drained = handled.then(() => this.#runs.drained());
    await withTimeout(clock, drainMs + ABANDONED_MS, drained, undefined);
    cancel();
    this.#abandon();
    this.#runs.stopSettling();
    await this.#group?.leave();
  }

  /** Drops everything: nothing of it is settled. */
  async discard(): Promise<void> {
    this.#stopping.abort();
    this.#abandon();
    this.#runs.stopSettling();
    await this.#dispatching;
    await this.#runs.drained();
    await this.#group?.leave();
  }

  #abandon(): void {
    for (const partition of this.#partitions.values()) partition.lost.abort();
  }

  #assigned(positions: readonly Position[]): void {
    const fresh = positions.map(
      ({ topic, partition }) => new PartitionWork({ topic, partition }, this.#consumer, this.#options.limits),
    );
    for (const work of fresh) this.#partitions.set(work.partition, work);
    if (fresh.length === 0) return;
    // Records are taken meanwhile; they run when it is known which of them were settled.
    this.#load(fresh, positions).catch(this.#onFailure);
  }

  async #load(fresh: readonly PartitionWork[], positions: readonly Position[]): Promise<void> {
    const { processed, rules } = this.#options;
    const loaded = await loadTaskStates(
      this.#context,
      processed,
      rules.agent,
      positions,
      this.#stopping.signal,
    );
    if (this.#stopping.signal.aborted) return;
    for (const work of fresh) work.states = loaded.get(work.partition)!;
    this.#runs.wake();
  }

  /**
   * The partitions stay this member's until this resolves, unless they are lost: what is under way may end, and
   * nothing more begins. What takes too long is aborted, and runs again elsewhere.
   */
  async #revoked(partitions: readonly TopicPartition[], lost: boolean): Promise<void> {
    const leaving = partitions.flatMap(({ partition }) => this.#partitions.get(partition) ?? []);
    // Work that was given up is not awaited.
    const idle = Promise.all(leaving.map((work) => (work.owned ? work.leave() : undefined)));
    if (!lost && !this.#consumer.away)
      await withTimeout(this.#context.clock, this.#options.leaveMs, idle, undefined);
    for (const work of leaving) {
      work.lost.abort();
      this.#partitions.delete(work.partition);
    }
    await this.#runs.idle();
  }

  #take({ partition, records }: Batch): void {
    const work = this.#partitions.get(partition);
    // The new owner reads the revoked records again.
    if (!work || work.leaving) return;
    work.take(records);
    if (work.full && !work.paused) {
      work.paused = true;
      this.#group?.pause(work);
    }
    this.#runs.wake();
  }
}

/** An agent's work in this process. */
export interface AgentWork extends Service {
  readonly agent: string;
  /** Tasks under way. */
  readonly running: number;
  /** Settled tasks that the committed offset has not passed yet. */
  readonly ahead: number;
}

/** Works on an agent's tasks until it is stopped. */
export function consumeTasks(context: Context, options: SessionOptions, consumer: Consumer): AgentWork {
  let session: AgentSession | undefined;
  const service = supervise(context, `agent ${consumer.agent}`, async (onFailure) => {
    const next = new AgentSession(context, options, consumer, onFailure);
    session = next;
    await next.start();
    return next;
  });
  return {
    agent: consumer.agent,
    get running() {
      return session?.running ?? 0;
    },
    get ahead() {
      return session?.ahead ?? 0;
    },
    stop: () => service.stop(),
  };
}
