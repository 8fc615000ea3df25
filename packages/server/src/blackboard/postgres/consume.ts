import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { Outcome } from "../../kit/group_commit.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Consumer } from "../board.ts";
import { Alarm } from "./alarm.ts";
import type { Claimed, Finished } from "./claimed.ts";
import type { Claims } from "./claims.ts";
import { Gate, KEEP_MS, Waiting } from "./gate.ts";
import type { Taker } from "./handover.ts";
import { Pace } from "./pace.ts";
import { settleSurely } from "./surely.ts";

/** What a consumption needs of the board. */
export interface Counter {
  claim(agent: string, most: number): Promise<Claims>;
  /** Of each whether it was settled, false if the claim was lost; or why that is not known. */
  settle(finished: readonly Finished[]): Promise<readonly Outcome[]>;
  /** Keeps the leases until `letGo`; calls `lost` when a claim is another's. */
  hold(claims: readonly Claimed[], lost: (claim: Claimed) => void): void;
  letGo(claim: Claimed): void;
  /** Gives claims back; those that were not begun without counting an attempt. */
  release(claims: readonly { readonly claim: Claimed; readonly begun: boolean }[]): Promise<void>;
}

interface Running {
  readonly claim: Claimed;
  readonly abort: AbortController;
}

const MOST_SETTLING = 2_048;
/** What is done at once, one after the other, is settled together, but waits for no longer than this for those that follow. */
const SETTLE_WITHIN_MS = 10;
/** Whoever opened the board polls for all agents at once. */
const IDLE_MS = 3_600_000;

/** Works on the tasks of one agent, in this process. */
export class Consumption implements Service, Taker {
  readonly #context: Context;
  readonly #consumer: Consumer;
  readonly #counter: Counter;
  readonly #stopMs: number;
  readonly #wake = new Wake();
  readonly #due: Alarm;
  readonly #loop: Service;
  readonly #ahead: Claimed[] = [];
  /** Those that have to be waited for. */
  readonly #running = new Map<Claimed, Running>();
  readonly #settling = new Set<Promise<void>>();
  readonly #giveUp = new AbortController();
  readonly #ended = new AbortController();
  readonly #gate: Gate;
  readonly #waiting: Waiting<Running>;
  readonly #pace: Pace;
  readonly #onLost = (claim: Claimed) => this.#lost(claim);
  #starting: Promise<void> | undefined;
  /** For the next task. It is that one's own if there is something to wait for. */
  #abort = new AbortController();
  /** What has ended and is handed on with all that ends in the same moment, or is started in one go. */
  #finished: Finished[] = [];
  /** When the first of them ended, if they were started in one go. */
  #finishedSince = 0;
  #isStartingSome = false;
  /** How many are not settled that have ended. */
  #unsettled = 0;
  /** How many may start before the gate is asked again: one after it was closed, since it may let only one try. */
  #trust = Number.POSITIVE_INFINITY;
  #reserved = 0;
  /** How many the claim under way asks for. */
  #asked = 0;
  /** There may be tasks that no claim has looked for yet. */
  #owed = true;
  /** The last claim brought all that it asked for: there may be more. */
  #backlog = false;
  #stopping: Promise<void> | undefined;
  #idle: (() => void) | undefined;

  constructor(context: Context, consumer: Consumer, counter: Counter, how: { readonly stopMs: number }) {
    this.#context = context;
    this.#consumer = consumer;
    this.#counter = counter;
    this.#gate = new Gate(consumer, context.clock);
    this.#pace = new Pace(consumer.concurrency);
    this.#waiting = new Waiting(context.clock, this.#gate, this.#ended.signal, {
      isAny: () => consumer.begun !== undefined && this.#running.size > 0,
      all: () => [...this.#running.values()].filter(({ claim }) => consumer.begun?.(claim.task) === false),
      takeBack: (left) => this.#takeBack(left),
    });
    this.#due = new Alarm(context.clock, () => this.wake());
    this.#stopMs = consumer.away ? 0 : how.stopMs;
    this.#loop = runLoop(context, `board ${consumer.agent}`, {
      step: (signal) => this.#step(signal),
      wake: this.#wake,
      idleMs: IDLE_MS,
    });
  }

  get agent(): string {
    return this.#consumer.agent;
  }

  /** There may be tasks to claim. */
  wake(): void {
    this.#owed = true;
    this.#wake.wake();
  }

  async passes(): Promise<boolean> {
    return this.#canTake() && (await this.#gate.isOpen());
  }

  reserve(): boolean {
    if (!this.#canTake()) return false;
    this.#reserved++;
    return true;
  }

  unreserve(count: number): void {
    this.#reserved -= count;
    this.#pump();
  }

  accept(claim: Claimed): void {
    if (this.#stopping) return void this.#giveBack([{ claim, begun: false }]);
    this.#ahead.push(claim);
    this.#counter.hold([claim], this.#onLost);
    this.#pump();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    this.#due.stop();
    this.#ended.abort();
    const over = sleep(this.#context.clock, this.#stopMs, this.#giveUp.signal);
    const unstarted = this.#ahead.splice(0);
    const released = this.#giveBack(unstarted.map((claim) => ({ claim, begun: false })));
    const idle = new Promise<void>((resolve) => {
      this.#idle = resolve;
      if (this.#running.size === 0) resolve();
    });
    await Promise.all([this.#loop.stop(), released, this.#starting]);
    // A claim that was under way when it was stopped.
    await this.#giveBack(this.#ahead.splice(0).map((claim) => ({ claim, begun: false })));
    await Promise.race([idle.then(() => Promise.all(this.#settling)), over]);
    this.#giveUp.abort();
    const left = [...this.#running.values()];
    this.#running.clear();
    for (const { abort } of left) abort.abort();
    await this.#giveBack(left.map(({ claim }) => ({ claim, begun: !this.#consumer.away })));
    await Promise.all(this.#settling);
  }

  async #step(signal: AbortSignal): Promise<boolean> {
    if (!this.#wanted()) return false;
    await this.#consumer.gate(signal);
    const most = this.#wanted();
    if (signal.aborted || !most) return false;
    const { claims, missing, more, nextDueMs } = await this.#claim(most);
    for (const claim of claims) this.#ahead.push(claim);
    this.#counter.hold(claims, this.#onLost);
    this.#backlog = more || claims.length + missing.length === most;
    if (!this.#backlog && nextDueMs !== undefined) this.#due.in(nextDueMs);
    if (!this.#stopping) this.#pump();
    return this.#backlog;
  }

  async #claim(most: number): Promise<Claims> {
    this.#asked = most;
    this.#owed = false;
    try {
      return await this.#counter.claim(this.agent, most);
    } catch (error) {
      this.#owed = true;
      throw error;
    } finally {
      this.#asked = 0;
    }
  }

  /** Older tasks come first: whatever may be there must have been looked for. */
  #canTake(): boolean {
    return !this.#owed && !this.#backlog && !this.#stopping && this.#room() > 0;
  }

  #room(): number {
    if (this.#unsettled > MOST_SETTLING) return 0;
    return this.#pace.limit() - this.#running.size - this.#ahead.length - this.#reserved - this.#asked;
  }

  /** How many to claim now: none until it is worth a statement, and not all unless many wait: the rest may be handed over. */
  #wanted(): number {
    if (this.#ahead.length > this.#pace.ahead() / 2) return 0;
    const most = this.#backlog ? this.#pace.limit() : Math.ceil(this.#pace.limit() / 2);
    return Math.max(0, Math.min(this.#room(), most));
  }

  #pump(): void {
    if (this.#canStart())
      this.#starting ??= this.#start().finally(() => {
        this.#starting = undefined;
        this.#handOn();
        // All that it started may have ended by now.
        this.#pump();
      });
    if ((this.#owed || this.#backlog) && this.#wanted() > 0) this.#wake.wake();
  }

  #canStart(): boolean {
    return !this.#stopping && this.#ahead.length > 0 && this.#running.size < this.#consumer.concurrency;
  }

  /** Starts what was claimed while the gate is open, and gives it back when it stays closed: others may be well. */
  async #start(): Promise<void> {
    while (this.#canStart()) {
      let isOpen = await this.#gate.isOpen();
      if (!isOpen) {
        this.#trust = 1;
        this.#handOn();
        isOpen = await this.#gate.opensWithin(KEEP_MS, this.#ended.signal);
      }
      if (this.#stopping) return;
      if (isOpen) {
        this.#runSome(Math.min(this.#trust, this.#consumer.concurrency - this.#running.size));
        this.#trust = this.#trust > this.#consumer.concurrency ? Number.POSITIVE_INFINITY : this.#trust * 2;
        continue;
      }
      const kept = this.#ahead.splice(0).map((claim) => ({ claim, begun: false }));
      await this.#giveBack(kept);
      this.wake();
    }
  }

  /** What was started and stands before the gate is given back like the rest. */
  async #takeBack(left: readonly Running[]): Promise<void> {
    for (const { claim, abort } of left) {
      this.#running.delete(claim);
      abort.abort();
    }
    await this.#giveBack(left.map(({ claim }) => ({ claim, begun: false })));
    this.wake();
  }

  #runSome(most: number): void {
    const { clock } = this.#context;
    const began = clock.now();
    const before = this.#unsettled;
    if (this.#finished.length === 0) this.#finishedSince = began;
    this.#isStartingSome = true;
    for (let left = most; left > 0 && this.#canStart(); left--) this.#run(this.#ahead.shift()!);
    this.#isStartingSome = false;
    const now = clock.now();
    const ended = this.#unsettled - before;
    if (ended > 0) this.#pace.took((now - began) / ended);
    // Where many wait to be claimed, the database settles while the next ones are worked on.
    if (this.#backlog || Math.abs(now - this.#finishedSince) >= SETTLE_WITHIN_MS) this.#handOn();
  }

  #run(claim: Claimed): void {
    const abort = this.#abort;
    const work = this.#consumer.handle(claim.task, abort.signal);
    if (!(work instanceof Promise)) return this.#finish({ claim, settlement: work });
    const { clock } = this.#context;
    const began = clock.now();
    this.#abort = new AbortController();
    this.#running.set(claim, { claim, abort });
    this.#waiting.look();
    work.then((settlement) => {
      this.#pace.took(clock.now() - began);
      if (!this.#running.delete(claim)) return;
      this.#finish({ claim, settlement });
      this.#pump();
      if (this.#running.size === 0) this.#idle?.();
    });
  }

  #finish(finished: Finished): void {
    this.#unsettled++;
    this.#finished.push(finished);
    if (!this.#isStartingSome) queueMicrotask(() => this.#handOn());
  }

  #handOn(): void {
    const finished = this.#finished;
    if (finished.length === 0) return;
    this.#finished = [];
    const settling = this.#settle(finished).finally(() => this.#settling.delete(settling));
    this.#settling.add(settling);
  }

  async #settle(finished: readonly Finished[]): Promise<void> {
    const outcomes = await this.#counter.settle(finished).catch((error) => finished.map(() => ({ error })));
    const unsure: Promise<void>[] = [];
    for (let i = 0; i < finished.length; i++) {
      const outcome = outcomes[i]!;
      if ("error" in outcome) unsure.push(this.#settleSurely(finished[i]!, outcome.error as Error));
      else this.#settled(finished[i]!, outcome.ok as boolean);
    }
    this.#pump();
    await Promise.all(unsure);
  }

  async #settleSurely(finished: Finished, failure: Error): Promise<void> {
    const settle = async () => {
      const [outcome] = await this.#counter.settle([finished]);
      if ("error" in outcome!) throw outcome.error;
      return outcome!.ok as boolean;
    };
    const { signal } = this.#giveUp;
    this.#settled(finished, await settleSurely(this.#context, finished.claim, settle, signal, failure));
    this.#pump();
  }

  #settled({ claim, settlement }: Finished, isSettled: boolean | undefined): void {
    if (isSettled === false) this.#report(claim);
    else if (isSettled && settlement.kind === "retry") this.#due.in(settlement.delayMs);
    this.#counter.letGo(claim);
    this.#unsettled--;
  }

  #lost(claim: Claimed): void {
    this.#counter.letGo(claim);
    const at = this.#ahead.indexOf(claim);
    if (at >= 0) this.#ahead.splice(at, 1);
    const running = this.#running.get(claim);
    if (!running) return;
    this.#running.delete(claim);
    running.abort.abort();
    this.#report(claim);
    this.#pump();
    if (this.#running.size === 0) this.#idle?.();
  }

  #report({ task }: Claimed): void {
    const what = { agent: this.agent, task: task.id, attempt: task.attempt };
    this.#context.log.warn(what, "the claim on a task was lost: what came of it is thrown away");
  }

  async #giveBack(claims: readonly { readonly claim: Claimed; readonly begun: boolean }[]): Promise<void> {
    if (claims.length === 0) return;
    for (const { claim } of claims) this.#counter.letGo(claim);
    await this.#counter
      .release(claims)
      .catch((error) =>
        this.#context.log.warn(
          { err: error.message, agent: this.agent },
          "claims were not given back; they expire",
        ),
      );
  }
}
