import { backoff } from "../kit/backoff.ts";
import { sleep } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { Consumer } from "./board.ts";
import { Alarm } from "./postgres_alarm.ts";
import type { Claims } from "./postgres_claims.ts";
import type { Taker } from "./postgres_handover.ts";
import type { Claimed } from "./postgres_statements.ts";
import type { Settlement } from "./task.ts";

/** What a consumption needs of the board. */
export interface Counter {
  claim(agent: string, most: number): Promise<Claims>;
  settle(claim: Claimed, settlement: Settlement): Promise<boolean>;
  /** Keeps the lease until `letGo`; calls `lost` when the claim is another's. */
  hold(claim: Claimed, lost: () => void): void;
  letGo(claim: Claimed): void;
  /** Gives claims back; those that were not begun without counting an attempt. */
  release(claims: readonly { readonly claim: Claimed; readonly begun: boolean }[]): Promise<void>;
}

interface Running {
  readonly claim: Claimed;
  readonly abort: AbortController;
}

/** Tasks that will start within this time are worth claiming ahead: more would be kept from other processes. */
const AHEAD_MS = 50;
const MOST_AHEAD = 1_000;
const MOST_SETTLING = 2_048;
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
  readonly #running = new Map<bigint, Running>();
  readonly #settling = new Set<Promise<void>>();
  readonly #giveUp = new AbortController();
  #reserved = 0;
  /** How many the claim under way asks for. */
  #asked = 0;
  /** There may be tasks that no claim has looked for yet. */
  #owed = true;
  /** The last claim brought all that it asked for: there may be more. */
  #backlog = false;
  #stopping: Promise<void> | undefined;
  /** Milliseconds that a task takes, smoothed. */
  #duration = Number.POSITIVE_INFINITY;
  #idle: (() => void) | undefined;

  constructor(context: Context, consumer: Consumer, counter: Counter, how: { readonly stopMs: number }) {
    this.#context = context;
    this.#consumer = consumer;
    this.#counter = counter;
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
    if (!this.#canTake()) return false;
    const waiting = new AbortController();
    let open = false;
    this.#consumer.gate(waiting.signal).then(
      () => {
        open = !waiting.signal.aborted;
      },
      // The loop meets the same error and reports it.
      () => {},
    );
    await new Promise(setImmediate);
    waiting.abort();
    return open;
  }

  reserve(): boolean {
    if (!this.#canTake()) return false;
    this.#reserved++;
    return true;
  }

  unreserve(count: number): void {
    this.#reserved -= count;
  }

  accept(claim: Claimed): void {
    if (this.#stopping) return void this.#giveBack([{ claim, begun: false }]);
    this.#ahead.push(claim);
    this.#counter.hold(claim, () => this.#lost(claim));
    this.#pump();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    this.#due.stop();
    const over = sleep(this.#context.clock, this.#stopMs, this.#giveUp.signal);
    const unstarted = this.#ahead.splice(0);
    const released = this.#giveBack(unstarted.map((claim) => ({ claim, begun: false })));
    const idle = new Promise<void>((resolve) => {
      this.#idle = resolve;
      if (this.#running.size === 0) resolve();
    });
    await Promise.all([this.#loop.stop(), released]);
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
    const { claims, nextDueMs } = await this.#claim(most);
    for (const claim of claims) {
      this.#ahead.push(claim);
      this.#counter.hold(claim, () => this.#lost(claim));
    }
    this.#backlog = claims.length === most;
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

  #aheadLimit(): number {
    return Math.min(
      MOST_AHEAD,
      Math.floor((this.#consumer.concurrency * AHEAD_MS) / Math.max(1, this.#duration)),
    );
  }

  /** Older tasks come first: whatever may be there must have been looked for. */
  #canTake(): boolean {
    return !this.#owed && !this.#backlog && !this.#stopping && this.#room() > 0;
  }

  #limit(): number {
    return this.#consumer.concurrency + this.#aheadLimit();
  }

  #room(): number {
    if (this.#settling.size > MOST_SETTLING) return 0;
    return this.#limit() - this.#running.size - this.#ahead.length - this.#reserved - this.#asked;
  }

  /** How many to claim now: none until it is worth a statement, and not all unless many wait: the rest may be handed over. */
  #wanted(): number {
    if (this.#ahead.length > this.#aheadLimit() / 2) return 0;
    const most = this.#backlog ? this.#limit() : Math.ceil(this.#limit() / 2);
    return Math.max(0, Math.min(this.#room(), most));
  }

  #pump(): void {
    while (this.#running.size < this.#consumer.concurrency && !this.#stopping) {
      const claim = this.#ahead.shift();
      if (!claim) break;
      this.#run(claim);
    }
    if ((this.#owed || this.#backlog) && this.#wanted() > 0) this.#wake.wake();
  }

  #run(claim: Claimed): void {
    const abort = new AbortController();
    const { clock } = this.#context;
    this.#running.set(claim.seq, { claim, abort });
    const began = clock.now();
    const work = this.#consumer.handle(claim.task, abort.signal);
    work.then((settlement) => {
      const took = Math.max(0.1, clock.now() - began);
      this.#duration = Number.isFinite(this.#duration) ? this.#duration * 0.9 + took * 0.1 : took;
      if (this.#running.get(claim.seq)?.abort !== abort) return;
      this.#running.delete(claim.seq);
      const settling = this.#settle(claim, settlement).finally(() => this.#settling.delete(settling));
      this.#settling.add(settling);
      this.#pump();
      if (this.#running.size === 0) this.#idle?.();
    });
  }

  /** Settles until it is certain, or it is known that it cannot be. */
  async #settle(claim: Claimed, settlement: Settlement): Promise<void> {
    for (let failures = 0; ; failures++) {
      try {
        const settled = await this.#counter.settle(claim, settlement);
        if (!settled) this.#report(claim);
        else if (settlement.kind === "retry") this.#due.in(settlement.delayMs);
        break;
      } catch (error) {
        const { message } = error as Error;
        if (this.#giveUp.signal.aborted) {
          this.#context.log.warn(
            { err: message, agent: this.agent, task: claim.task.id },
            "a task was not settled; it runs again",
          );
          break;
        }
        this.#context.log.warn(
          { err: message, agent: this.agent, task: claim.task.id },
          "a task could not be settled yet",
        );
        const wait = backoff(failures, this.#context.random, { base: 50, cap: 2_000 });
        await sleep(this.#context.clock, wait, this.#giveUp.signal);
      }
    }
    this.#counter.letGo(claim);
  }

  #lost(claim: Claimed): void {
    this.#counter.letGo(claim);
    const at = this.#ahead.indexOf(claim);
    if (at >= 0) this.#ahead.splice(at, 1);
    const running = this.#running.get(claim.seq);
    if (running?.claim !== claim) return;
    this.#running.delete(claim.seq);
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
