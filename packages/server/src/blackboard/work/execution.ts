import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { Consumer } from "../board.ts";
import type { Agent, AgentOutput, AgentTask } from "../model/agent.ts";
import type { Artifact } from "../model/artifact.ts";
import { FatalError } from "../model/errors.ts";
import { type Settlement, type Task, workKey } from "../model/task.ts";
import { type BoardMetrics, showAgent } from "../observe/metrics.ts";
import type { BoardSpans, ProcessSpan } from "../observe/spans.ts";
import type { DraftRules, MadeArtifact } from "../publish/drafts.ts";
import { type BreakerOptions, type BreakerState, openBreaker, type Permit } from "./breaker.ts";
import { type OutputRules, outputsOf } from "./outputs.ts";
import { openRate, UNLIMITED } from "./rate.ts";
import type { Slots } from "./slots.ts";
import { isThenable, type Supervision, supervise, TimeoutError } from "./supervise.ts";
import { verdictOn } from "./verdict.ts";

/** Work that is done elsewhere: it waits for no place here, and keeps its own time. */
export type RemoteWork = (task: Task, signal: AbortSignal) => Promise<AgentOutput>;

/** What the agents of a process share. */
export interface ExecutorOptions extends Pick<DraftRules, "schemas" | "strictTypes"> {
  readonly slots: Slots;
  readonly metrics: BoardMetrics;
  readonly spans: BoardSpans;
  /** The longest chain of agents. */
  readonly maxDepth: number;
  /** Keeps outputs that are to be published later, once however often they come. */
  readonly later?: (outputs: readonly MadeArtifact[]) => Promise<void>;
  /** How long work may go on after it was told to stop; 10,000 unless set. */
  readonly graceMs?: number;
  readonly breaker?: BreakerOptions;
}

/** The work on an agent's tasks in this process. */
export interface AgentConsumer extends Consumer {
  state(): BreakerState;
  running(): number;
  /** Tells work to stop, and what waits to begin that it shall not, where there is a reason. */
  cancel(why: (task: Task) => Error | undefined): void;
}

/** Does the work of agents: places, rates, timeouts, retries and breakers. */
export interface Executor {
  /** Who works on the tasks of an agent: its `run`, unless the work is done elsewhere. */
  consumer(agent: Agent, remote?: RemoteWork): AgentConsumer;
}

/** Opens the executor of a process. */
export function openExecutor(context: Context, options: ExecutorOptions): Executor {
  return { consumer: (agent, remote) => consumerOf(context, options, agent, remote) };
}

function consumerOf(
  context: Context,
  options: ExecutorOptions,
  agent: Agent,
  remote: RemoteWork | undefined,
): AgentConsumer {
  const { clock, log } = context;
  const { metrics, spans, graceMs = 10_000 } = options;
  const rate = agent.options.rate ? openRate(agent.options.rate, clock) : UNLIMITED;
  const breaker = openBreaker(context, options.breaker, (state) =>
    log.info({ agent: agent.name, state }, "the breaker of an agent changed"),
  );
  const outputRules: OutputRules = { ...options, clock };
  let running = 0;
  /** Tasks that are here and not begun, and how each is told that it shall not. */
  const waiting = new Map<Task, (reason: unknown) => void>();
  /** How work under way is told to stop. */
  const stoppable = new Map<Task, (reason: unknown) => void>();

  /** What a start takes of the breaker and the rate, if both let it. */
  function startWith(release: () => void, signal: AbortSignal): Started | undefined {
    const permit = rate.wait() > 0 || signal.aborted ? undefined : breaker.enter();
    if (!permit) return undefined;
    rate.take();
    return { release, permit };
  }

  /** A place, a start within the rate and the breaker's leave, all at the same moment. */
  async function start(signal: AbortSignal): Promise<Started | undefined> {
    while (!signal.aborted) {
      await breaker.ready(signal);
      const release = remote ? NO_PLACE : await options.slots.take(agent.priority, signal);
      if (!release) return undefined;
      const started = startWith(release, signal);
      if (started) return started;
      // Others may use the place while this one waits.
      release();
      const wait = rate.wait();
      if (wait > 0) await sleep(clock, wait, signal);
    }
    return undefined;
  }

  /** The same at once, where nothing is in the way. */
  function startAtOnce(signal: AbortSignal): Started | undefined {
    if (breaker.state() !== "closed") return undefined;
    const release = remote ? NO_PLACE : options.slots.takeFree();
    if (!release) return undefined;
    const started = startWith(release, signal);
    if (!started) release();
    return started;
  }

  /** No wait where there is nothing to wait for: this is done for every task. */
  function attempt(task: Task, signal: AbortSignal, started: Started): Promise<Settlement> | Settlement {
    running++;
    const under: Attempt = { task, signal, started, startedAt: clock.now(), span: undefined };
    try {
      under.span = spans.process(task);
      const { trace } = under.span;
      const answer = supervise((stop) => work(task, trace, stop), signal, supervisionOf(task));
      return answer === undefined ? end(under, NOTHING) : attemptOn(under, answer);
    } catch (error) {
      return end(under, failed(task, error));
    }
  }

  async function attemptOn(under: Attempt, answer: unknown): Promise<Settlement> {
    const { task, span } = under;
    let settlement: Settlement = NOTHING;
    try {
      const output = isThenable(answer) ? await answer : answer;
      if (output !== undefined)
        settlement = { kind: "done", outputs: await outputsOf(output, task, span?.trace, outputRules) };
    } catch (error) {
      settlement = failed(task, error);
    }
    return end(under, settlement);
  }

  function failed(task: Task, error: unknown): Settlement {
    if (error instanceof TimeoutError) metrics.timeouts.add(1, { agent: agent.name });
    return verdictOn(error, task, agent, context.random);
  }

  function end({ task, signal, started, startedAt, span }: Attempt, settlement: Settlement): Settlement {
    let outcome = settlement;
    try {
      span?.end(settlement.kind === "done" ? undefined : settlement.failure);
      if (!signal.aborted)
        outcome = { ...settlement, attempt: { startedAt, endedAt: clock.now(), trace: span?.trace } };
    } catch (error) {
      outcome = verdictOn(error, task, agent, context.random);
    }
    if (stoppable.size > 0) stoppable.delete(task);
    running--;
    started.release();
    report(started.permit, outcome, signal);
    return outcome;
  }

  async function attemptLater(task: Task, signal: AbortSignal): Promise<Settlement> {
    const unwanted = new AbortController();
    waiting.set(task, (reason) => unwanted.abort(reason));
    const started = await start(AbortSignal.any([signal, unwanted.signal]));
    waiting.delete(task);
    if (started) return attempt(task, signal, started);
    return unwanted.signal.aborted
      ? verdictOn(unwanted.signal.reason, task, agent, context.random)
      : NOT_STARTED;
  }

  function supervisionOf(task: Task): Supervision {
    return {
      clock,
      timeoutMs: remote ? undefined : agent.timeoutMs,
      graceMs,
      onWatch: (tellToStop) => void stoppable.set(task, tellToStop),
      onAbandoned() {
        metrics.abandoned.add(1, { agent: agent.name });
        log.warn(
          { agent: agent.name, task: task.id, graceMs },
          "work goes on although it was told to stop: pass its signal to whatever it waits for",
        );
      },
    };
  }

  function work(task: Task, trace: string | undefined, signal: AbortSignal): Promise<unknown> | unknown {
    if (remote) return remote(task, signal);
    if (agent.options.run) return agent.options.run(agentTask(task, trace), signal);
    throw new FatalError(`Agent "${agent.name}" has no run: its tasks are claimed over HTTP.`);
  }

  const consumer: AgentConsumer = {
    agent: agent.name,
    order: agent.order,
    strict: agent.strict,
    concurrency: agent.concurrency,
    away: remote !== undefined,
    state: breaker.state,
    running: () => running,
    begun: (task) => !waiting.has(task),
    cancel(why) {
      for (const [task, tell] of [...waiting, ...stoppable]) {
        const reason = why(task);
        if (reason) tell(reason);
      }
    },

    async gate(signal) {
      for (let wait = 1; wait > 0 && !signal.aborted; ) {
        await breaker.ready(signal);
        wait = rate.wait();
        if (wait > 0) await sleep(clock, wait, signal);
      }
    },

    handle(task, signal) {
      if (task.attempt > agent.retry.attempts) return workerLost(task);
      const started = startAtOnce(signal);
      return started ? attempt(task, signal, started) : attemptLater(task, signal);
    },
  };
  showAgent(metrics, agent.name, consumer);
  return consumer;
}

interface Started {
  readonly release: () => void;
  readonly permit: Permit;
}

/** Work that has begun. */
interface Attempt {
  readonly task: Task;
  readonly signal: AbortSignal;
  readonly started: Started;
  readonly startedAt: number;
  span: ProcessSpan | undefined;
}

const NO_PLACE = () => undefined;
const NOTHING: Settlement = { kind: "done", outputs: [] };

/** Thrown away by the board, which has taken the task back. */
const NOT_STARTED: Settlement = {
  kind: "retry",
  delayMs: 0,
  failure: { class: "NotStarted", message: "The task was taken back before it started.", kind: "retryable" },
};

/** The process died each time, so there is nobody who could have said why. */
function workerLost({ attempt }: Task): Settlement {
  const message = `The task was started ${attempt - 1} times, and no process that worked on it came to an end.`;
  return { kind: "dead", failure: { class: "WorkerLost", message, kind: "fatal" } };
}

/** A rate limit is no sign of illness, a fatal error speaks of its artifact, and what was taken away says nothing. */
function report(permit: Permit, settlement: Settlement, signal: AbortSignal): void {
  if (signal.aborted) permit.said("dropped");
  else if (settlement.kind === "done") permit.said("succeeded");
  else if (settlement.failure.kind !== "retryable") permit.said("dropped");
  else permit.said("failed");
}

/** The task as the agent sees it. A copy, so that changes by the agent do not reach its retry or dead letter. */
function agentTask(task: Task, trace: string | undefined): AgentTask {
  const artifacts = JSON.parse(JSON.stringify(task.artifacts)) as [Artifact, ...Artifact[]];
  const [artifact] = artifacts;
  return {
    id: task.id,
    artifact,
    artifacts,
    correlationId: artifact.correlation_id,
    attempt: task.attempt,
    idempotencyKey: workKey(task),
    traceparent: trace,
  };
}
