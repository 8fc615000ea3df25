import { expect } from "vitest";
import type { Board, Consumer } from "../../../../server/src/blackboard/board.ts";
import type { Artifact } from "../../../../server/src/blackboard/model/artifact.ts";
import type { Failure, Settlement, Task } from "../../../../server/src/blackboard/model/task.ts";
import type { Service } from "../../../../server/src/kit/service.ts";
import { type AgentRules, eventually, rules } from "./support.ts";

/** One execution. */
export interface Run {
  readonly task: Task;
  readonly signal: AbortSignal;
  readonly startedAt: number;
  endedAt?: number;
  settlement?: Settlement;
}

type Work = (task: Task, run: Run) => Settlement | Promise<Settlement>;

export const done = (...outputs: Artifact[]): Settlement => ({ kind: "done", outputs });
export const retry = (delayMs: number, message = "not yet"): Settlement => ({
  kind: "retry",
  delayMs,
  failure: failure("retryable", message),
});
export const dead = (message = "never"): Settlement => ({ kind: "dead", failure: failure("fatal", message) });

export function failure(kind: Failure["kind"], message: string): Failure {
  return { class: "Error", message, stack: `Error: ${message}\n    at a test`, kind };
}

/** The payload of a task's artifact. */
export const payloadOf = (task: Task) => task.artifacts[0].payload;

/** An agent's work that records its tasks. Several processes may share one. */
export class Worker implements Consumer {
  readonly agent: string;
  readonly order: Consumer["order"];
  readonly strict: boolean;
  readonly concurrency: number;
  readonly away: boolean;
  readonly runs: Run[] = [];
  /** Tasks of one key that ran at the same time. */
  readonly overlaps: (readonly [Task, Task])[] = [];
  readonly errors: unknown[] = [];
  gates = 0;
  mostAtOnce = 0;
  readonly #work: Work;
  readonly #running: Run[] = [];
  readonly #released = Promise.withResolvers<void>();
  #gate = Promise.withResolvers<void>();
  #isOpen = true;

  constructor(agent: AgentRules | string, work: Work = () => done(), concurrency = 10, away = false) {
    const { agent: name, order, strict } = typeof agent === "string" ? rules(agent) : agent;
    this.agent = name;
    this.order = order;
    this.strict = strict;
    this.concurrency = concurrency;
    this.away = away;
    this.#work = work;
    this.#gate.resolve();
  }

  /** Blocks held work until release, and until the end of the test at the latest. */
  get released(): Promise<void> {
    return this.#released.promise;
  }
  release(): void {
    this.#released.resolve();
  }

  closeGate(): void {
    // A claim that waits at a closed gate must pass at the next opening, however often it was closed.
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#gate = Promise.withResolvers();
  }
  openGate(): void {
    this.#isOpen = true;
    this.#gate.resolve();
  }

  async gate(signal: AbortSignal): Promise<void> {
    this.gates++;
    if (signal.aborted) return;
    const aborted = Promise.withResolvers<void>();
    const abort = () => aborted.resolve();
    signal.addEventListener("abort", abort, { once: true });
    await Promise.race([this.#gate.promise, aborted.promise]);
    signal.removeEventListener("abort", abort);
  }

  async handle(task: Task, signal: AbortSignal): Promise<Settlement> {
    const run: Run = { task, signal, startedAt: performance.now() };
    const beside = this.#running.find((other) => other.task.key === task.key);
    if (beside) this.overlaps.push([beside.task, task]);
    this.runs.push(run);
    this.#running.push(run);
    this.mostAtOnce = Math.max(this.mostAtOnce, this.#running.length);
    try {
      run.settlement = await this.#work(task, run);
    } catch (error) {
      this.errors.push(error);
      run.settlement = dead("the test itself failed");
    }
    run.endedAt = performance.now();
    this.#running.splice(this.#running.indexOf(run), 1);
    return run.settlement;
  }

  /** Payloads in the order in which their runs began; of one key, if it is given. */
  payloads(key?: string): unknown[] {
    return this.#of(key).map(({ task }) => payloadOf(task));
  }
  attempts(key?: string): number[] {
    return this.#of(key).map(({ task }) => task.attempt);
  }
  #of(key?: string): Run[] {
    return this.runs.filter(({ task }) => key === undefined || task.key === key);
  }

  /** Waits until this many runs have begun, and fails if there are more. */
  async ran(count: number): Promise<void> {
    await eventually(() => expect(this.runs.length).toBeGreaterThanOrEqual(count));
    expect(this.runs, this.agent).toHaveLength(count);
    expect(this.errors).toEqual([]);
  }
}

/** Consumers in several processes, which end with the test. */
export interface Started extends Service, AsyncDisposable {}

/** Starts consumers in these processes, until it is disposed of. */
export function start(worker: Worker, ...boards: readonly Board[]): Started {
  const services = boards.map((board) => board.consume(worker));
  const stop = async () => {
    await Promise.all(services.map((service) => service.stop()));
  };
  return {
    stop,
    async [Symbol.asyncDispose]() {
      worker.release();
      worker.openGate();
      await stop();
    },
  };
}
