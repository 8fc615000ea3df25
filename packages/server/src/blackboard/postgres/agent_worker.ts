import { type Clock, sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { Outcome } from "../../kit/group_commit.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Consumer } from "../board.ts";
import type { Claims } from "./claim_store.ts";
import { Gate, GateWatch, KEEP_MS } from "./gate.ts";
import { type Finished, settleWithRetry } from "./settler.ts";
import type { Claim } from "./statements.ts";

/** The parts of the board that a worker needs. */
export interface WorkerStore {
  claim(
    agent: string,
    most: number,
  ): Promise<Pick<Claims, "claims" | "nextDueMs"> & { readonly full: boolean }>;
  /** Answers of each whether it was settled, false if the claim was lost; or why that is not known. */
  settle(finished: readonly Finished[]): Promise<readonly Outcome[]>;
  /** Renews the leases until `drop`; calls `onLost` when a claim is another process's. */
  hold(claims: readonly Claim[], onLost: (claim: Claim) => void): void;
  drop(claim: Claim): void;
  /** Gives claims back; those that were not begun without counting an attempt. */
  release(claims: readonly Claim[], begun: boolean): Promise<void>;
}

interface Running {
  readonly claim: Claim;
  readonly abort: AbortController;
}

const MAX_UNSETTLED = 2_048;
/** Tasks that will start within this time are worth claiming ahead: more would be kept from other processes. */
const AHEAD_MS = 50;
const MAX_AHEAD = 500;
/** Tasks that end one after the other are settled together, but the first waits no longer than this. */
const SETTLE_WITHIN_MS = 10;
/** The board polls for all agents at once. */
const IDLE_MS = 3_600_000;

/** Works on the tasks of one agent in this process. */
export class AgentWorker implements Service {
  readonly #context: Context;
  readonly #consumer: Consumer;
  readonly #store: WorkerStore;
  readonly #stopMs: number;
  readonly #wake = new Wake();
  readonly #due: DueTimer;
  readonly #loop: Service;
  /** Claimed, and not started. */
  #ahead: Claim[] = [];
  readonly #running = new Map<Claim, Running>();
  readonly #settling = new Set<Promise<void>>();
  readonly #giveUp = new AbortController();
  readonly #ended = new AbortController();
  readonly #gate: Gate;
  readonly #watch: GateWatch<Running>;
  readonly #onLost = (claim: Claim) => this.#lost(claim);
  #starting: Promise<void> | undefined;
  /** For the next task, until it is known that there is something to wait for. */
  #abort = new AbortController();
  /** Ended, and not handed to the store. */
  #finished: Finished[] = [];
  #finishedSince = 0;
  #isStarting = false;
  #unsettled = 0;
  /** How many tasks may start before the gate is checked again: one after it was closed, since it may let only one try. */
  #trust = Number.POSITIVE_INFINITY;
  /** Milliseconds that a task takes, smoothed. */
  #taskMs = Number.POSITIVE_INFINITY;
  #isClaiming = false;
  /** There may be tasks to claim. */
  #mayHaveMore = true;
  #stopping: Promise<void> | undefined;
  #idle: (() => void) | undefined;

  constructor(context: Context, consumer: Consumer, store: WorkerStore, how: { readonly stopMs: number }) {
    this.#context = context;
    this.#consumer = consumer;
    this.#store = store;
    this.#gate = new Gate(consumer, context.clock);
    this.#watch = new GateWatch(context.clock, this.#gate, this.#ended.signal, {
      isAny: () => consumer.begun !== undefined && this.#running.size > 0,
      all: () => [...this.#running.values()].filter(({ claim }) => consumer.begun?.(claim.task) === false),
      requeue: (left) => this.#requeue(left),
    });
    this.#due = new DueTimer(context.clock, () => this.wake());
    this.#stopMs = consumer.away ? 0 : how.stopMs;
    this.#loop = runLoop(context, `board ${consumer.agent}`, {
      step: (signal) => this.#claim(signal),
      wake: this.#wake,
      idleMs: IDLE_MS,
    });
  }

  get agent(): string {
    return this.#consumer.agent;
  }

  /** There may be tasks to claim. */
  wake(): void {
    this.#mayHaveMore = true;
    this.#wake.wake();
  }

  /** Waits for running tasks, and releases the rest. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    this.#due.stop();
    this.#ended.abort();
    const over = sleep(this.#context.clock, this.#stopMs, this.#giveUp.signal);
    const released = this.#releaseClaims(this.#takeAhead(), false);
    const idle = new Promise<void>((resolve) => {
      this.#idle = resolve;
      if (this.#running.size === 0) resolve();
    });
    await Promise.all([this.#loop.stop(), released, this.#starting]);
    // A claim that was under way when it was stopped.
    await this.#releaseClaims(this.#takeAhead(), false);
    await Promise.race([idle.then(() => Promise.all(this.#settling)), over]);
    this.#giveUp.abort();
    const left = [...this.#running.values()];
    this.#running.clear();
    for (const { abort } of left) abort.abort();
    await this.#releaseClaims(
      left.map(({ claim }) => claim),
      !this.#consumer.away,
    );
    await Promise.all(this.#settling);
  }

  async #claim(signal: AbortSignal): Promise<boolean> {
    if (this.#wanted() === 0) return false;
    await this.#consumer.gate(signal);
    const most = this.#wanted();
    if (signal.aborted || most === 0) return false;
    this.#mayHaveMore = false;
    this.#isClaiming = true;
    try {
      const { claims, full, nextDueMs } = await this.#store.claim(this.agent, most);
      if (full) this.#mayHaveMore = true;
      else if (nextDueMs !== undefined) this.#due.in(nextDueMs);
      this.#ahead.push(...claims);
      this.#store.hold(claims, this.#onLost);
    } catch (error) {
      this.#mayHaveMore = true;
      throw error;
    } finally {
      this.#isClaiming = false;
    }
    if (!this.#stopping) this.#pump();
    return this.#mayHaveMore;
  }

  /** How many tasks may wait here for their start. */
  #maxAhead(): number {
    const { concurrency } = this.#consumer;
    return Math.min(MAX_AHEAD, Math.floor((concurrency * AHEAD_MS) / Math.max(1, this.#taskMs)));
  }

  /** How many tasks to claim now: none until it is worth a statement. */
  #wanted(): number {
    if (!this.#mayHaveMore || this.#stopping || this.#unsettled > MAX_UNSETTLED) return 0;
    const ahead = this.#maxAhead();
    if (this.#ahead.length > ahead / 2) return 0;
    return Math.max(0, this.#consumer.concurrency + ahead - this.#running.size - this.#ahead.length);
  }

  #pump(): void {
    if (this.#canStart())
      this.#starting ??= this.#start().finally(() => {
        this.#starting = undefined;
        this.#flush();
        // All that it started may have ended by now.
        this.#pump();
      });
    if (!this.#isClaiming && this.#wanted() > 0) this.#wake.wake();
  }

  #canStart(): boolean {
    return !this.#stopping && this.#ahead.length > 0 && this.#running.size < this.#consumer.concurrency;
  }

  /** Starts claimed tasks while the gate is open, and gives them back when it stays closed: others may be able to. */
  async #start(): Promise<void> {
    const { concurrency } = this.#consumer;
    while (this.#canStart()) {
      let isOpen = await this.#gate.isOpen();
      if (!isOpen) {
        this.#trust = 1;
        this.#flush();
        isOpen = await this.#gate.opensWithin(KEEP_MS, this.#ended.signal);
      }
      if (this.#stopping) return;
      if (isOpen) {
        this.#runSome(Math.min(this.#trust, concurrency - this.#running.size));
        this.#trust = this.#trust > concurrency ? Number.POSITIVE_INFINITY : this.#trust * 2;
        continue;
      }
      await this.#releaseClaims(this.#takeAhead(), false);
      this.wake();
    }
  }

  #takeAhead(): Claim[] {
    const claims = this.#ahead;
    this.#ahead = [];
    return claims;
  }

  async #requeue(left: readonly Running[]): Promise<void> {
    for (const { claim, abort } of left) {
      this.#running.delete(claim);
      abort.abort();
    }
    await this.#releaseClaims(
      left.map(({ claim }) => claim),
      false,
    );
    this.wake();
  }

  #runSome(most: number): void {
    const { clock } = this.#context;
    const began = clock.now();
    const before = this.#unsettled;
    if (this.#finished.length === 0) this.#finishedSince = began;
    this.#isStarting = true;
    const some = this.#ahead.slice(0, most);
    this.#ahead = this.#ahead.slice(most);
    for (const claim of some) this.#run(claim);
    this.#isStarting = false;
    const now = clock.now();
    const ended = this.#unsettled - before;
    if (ended > 0) this.#took((now - began) / ended);
    if (Math.abs(now - this.#finishedSince) >= SETTLE_WITHIN_MS) this.#flush();
  }

  #run(claim: Claim): void {
    const abort = this.#abort;
    const work = this.#consumer.handle(claim.task, abort.signal);
    if (!(work instanceof Promise)) return this.#finish({ claim, settlement: work });
    const { clock } = this.#context;
    const began = clock.now();
    this.#abort = new AbortController();
    this.#running.set(claim, { claim, abort });
    this.#watch.start();
    work.then((settlement) => {
      this.#took(clock.now() - began);
      if (!this.#running.delete(claim)) return;
      this.#finish({ claim, settlement });
      this.#pump();
      if (this.#running.size === 0) this.#idle?.();
    });
  }

  #took(ms: number): void {
    this.#taskMs = Number.isFinite(this.#taskMs) ? this.#taskMs * 0.9 + ms * 0.1 : ms;
  }

  #finish(finished: Finished): void {
    this.#unsettled++;
    this.#finished.push(finished);
    if (!this.#isStarting) queueMicrotask(() => this.#flush());
  }

  /** Settles what has ended. */
  #flush(): void {
    const finished = this.#finished;
    if (finished.length === 0) return;
    this.#finished = [];
    const settling = this.#settle(finished).finally(() => this.#settling.delete(settling));
    this.#settling.add(settling);
  }

  async #settle(finished: readonly Finished[]): Promise<void> {
    const outcomes = await this.#store.settle(finished).catch((error) => finished.map(() => ({ error })));
    const unknown: Promise<void>[] = [];
    finished.forEach((each, i) => {
      const outcome = outcomes[i]!;
      if ("error" in outcome) unknown.push(this.#settleAgain(each, outcome.error as Error));
      else this.#settled(each, outcome.ok as boolean);
    });
    this.#pump();
    await Promise.all(unknown);
  }

  async #settleAgain(finished: Finished, failure: Error): Promise<void> {
    const settle = async () => {
      const [outcome] = await this.#store.settle([finished]);
      if ("error" in outcome!) throw outcome.error;
      return outcome!.ok as boolean;
    };
    const { signal } = this.#giveUp;
    this.#settled(finished, await settleWithRetry(this.#context, finished.claim, settle, signal, failure));
    this.#pump();
  }

  #settled({ claim, settlement }: Finished, isSettled: boolean | undefined): void {
    if (isSettled === false) this.#report(claim);
    else if (isSettled && settlement.kind === "retry") this.#due.in(settlement.delayMs);
    this.#store.drop(claim);
    this.#unsettled--;
  }

  #lost(claim: Claim): void {
    this.#store.drop(claim);
    this.#ahead = this.#ahead.filter((each) => each !== claim);
    const running = this.#running.get(claim);
    if (!running) return;
    this.#running.delete(claim);
    running.abort.abort();
    this.#report(claim);
    this.#pump();
    if (this.#running.size === 0) this.#idle?.();
  }

  #report({ task }: Claim): void {
    const what = { agent: this.agent, task: task.id, attempt: task.attempt };
    this.#context.log.warn(what, "the claim on a task was lost: its outcome is discarded");
  }

  async #releaseClaims(claims: readonly Claim[], begun: boolean): Promise<void> {
    if (claims.length === 0) return;
    for (const claim of claims) this.#store.drop(claim);
    await this.#store
      .release(claims, begun)
      .catch((error) =>
        this.#context.log.warn(
          { err: error.message, agent: this.agent },
          "claims were not released; they expire",
        ),
      );
  }
}

/** Timers take no more than a month. A callback that runs too early checks, and sets it again. */
const MAX_WAIT_MS = 3_600_000;

/** A timer that fires at the earliest of the times it was set to. */
class DueTimer {
  readonly #clock: Clock;
  readonly #fire: () => void;
  #timer: { readonly at: number; readonly cancel: () => void } | undefined;
  #isStopped = false;

  constructor(clock: Clock, fire: () => void) {
    this.#clock = clock;
    this.#fire = fire;
  }

  /** Fires in `ms` milliseconds, unless it fires earlier. */
  in(ms: number): void {
    const wait = Math.min(Math.max(1, ms), MAX_WAIT_MS);
    const at = this.#clock.now() + wait;
    if (this.#isStopped || (this.#timer && this.#timer.at <= at)) return;
    this.#timer?.cancel();
    const cancel = this.#clock.after(wait, () => {
      this.#timer = undefined;
      this.#fire();
    });
    this.#timer = { at, cancel };
  }

  /** Never fires again. */
  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
  }
}
