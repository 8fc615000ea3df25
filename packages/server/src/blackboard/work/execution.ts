import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { Board, Consumer } from "../board.ts";
import type { Agent, AgentOutput, AgentTask, TaskConversation } from "../model/agent.ts";
import type { Artifact } from "../model/artifact.ts";
import { derivedId } from "../model/derived_id.ts";
import { failureOf } from "../model/errors.ts";
import { conversationOf, type Settlement, type Task, workKey } from "../model/task.ts";
import { type BoardMetrics, showAgent } from "../observe/metrics.ts";
import type { BoardSpans, ProcessSpan } from "../observe/spans.ts";
import type { PostToConversation } from "../options.ts";
import type { DraftRules, MadeArtifact } from "../publish/drafts.ts";
import { Unclaimed } from "../remote/held_tasks.ts";
import { type BreakerOptions, type Breakers, openBreakers, type Permit } from "./breaker.ts";
import { type OutputRules, outputArtifacts } from "./outputs.ts";
import { openRate, UNLIMITED } from "./rate.ts";
import { settlementForError } from "./retry_policy.ts";
import type { Slots } from "./slots.ts";
import { isThenable, type Supervision, supervise, TimeoutError } from "./supervise.ts";

/** Work on a remote worker. It takes no local slot and has its own timeout. */
export type RemoteWork = (task: Task, signal: AbortSignal) => Promise<AgentOutput>;

/** The parts shared by the agents of a process. */
export interface AgentParts extends Pick<DraftRules, "schemas">, Pick<Board, "known"> {
  readonly slots: Slots;
  readonly metrics: BoardMetrics;
  readonly spans: BoardSpans;
  /** The longest chain of agents. */
  readonly maxDepth: number;
  /** Schedules outputs for later. Idempotent. */
  readonly later?: (outputs: readonly MadeArtifact[]) => Promise<void>;
  readonly postToConversation?: PostToConversation | undefined;
  /** How long an attempt may run after its signal aborted; default 10,000. */
  readonly graceMs?: number;
  readonly breaker?: BreakerOptions;
}

/** The consumer of an agent's tasks in this process. */
export interface AgentConsumer extends Consumer {
  readonly breakers: Pick<Breakers, "state" | "open">;
  running(): number;
  /** Aborts running tasks, and refuses waiting ones, for which `why` returns a reason. */
  cancel(why: (task: Task) => Error | undefined): void;
}

/**
 * Opens the consumer of an agent's tasks, with slots, rate limits, timeouts, retries and circuit breakers. An agent without a `run`
 * is worked by a remote worker.
 */
export function openAgentConsumer(
  context: Context,
  options: AgentParts,
  agent: Agent,
  remote: RemoteWork,
): AgentConsumer {
  const { clock, log } = context;
  const { metrics, spans, graceMs = 10_000 } = options;
  const isRemote = agent.options.run === undefined;
  const rate = agent.options.rate ? openRate(agent.options.rate, clock) : UNLIMITED;
  const breakers = openBreakers(context, options.breaker, (org, state) =>
    log.info({ agent: agent.name, org, state }, "an agent's circuit breaker changed"),
  );
  const outputRules: OutputRules = { ...options, clock };
  let running = 0;
  /** Tasks since the gate was last passed. */
  let round = { postponed: 0, started: 0 };
  /** Tasks that have not started, with the function that refuses each. */
  const waiting = new Map<Task, (reason: unknown) => void>();
  /** The function that aborts each running task. */
  const stoppable = new Map<Task, (reason: unknown) => void>();

  /** Takes a start from the rate limit and the breaker, if both allow it. */
  function startWith(org: string, release: () => void, signal: AbortSignal): Started | undefined {
    const permit = rate.wait() > 0 || signal.aborted ? undefined : breakers.enter(org);
    if (!permit) return undefined;
    rate.take();
    return { release, permit };
  }

  /** Waits for a slot and the rate limit together, as long as the breaker of the org lets tasks run. */
  async function start(org: string, signal: AbortSignal): Promise<Started | undefined> {
    while (!signal.aborted && breakers.wait(org) === 0) {
      const release = isRemote ? NO_PLACE : await options.slots.take(agent.priority, signal);
      if (!release) return undefined;
      const started = startWith(org, release, signal);
      if (started) return started;
      // Release the slot while this task waits for the rate limit.
      release();
      const wait = rate.wait();
      if (wait > 0) await sleep(clock, wait, signal);
    }
    return undefined;
  }

  /** Starts synchronously if nothing is in the way. */
  function startAtOnce(org: string, signal: AbortSignal): Started | undefined {
    const release = isRemote ? NO_PLACE : options.slots.takeFree();
    if (!release) return undefined;
    const started = startWith(org, release, signal);
    if (!started) release();
    return started;
  }

  /** Synchronous where possible, because it runs for every task. */
  function attempt(task: Task, signal: AbortSignal, started: Started): Promise<Settlement> | Settlement {
    running++;
    round.started++;
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
        settlement = { kind: "done", outputs: await outputArtifacts(output, task, span?.trace, outputRules) };
    } catch (error) {
      settlement = failed(task, error);
    }
    return end(under, settlement);
  }

  function failed(task: Task, error: unknown): Settlement {
    if (error instanceof Unclaimed)
      return {
        kind: "retry",
        uncounted: true,
        delayMs: UNCLAIMED_MS,
        failure: failureOf(error, "rate_limited"),
      };
    if (error instanceof TimeoutError) metrics.timeouts.add(1, { agent: agent.name });
    return settlementForError(error, task, agent, context.random);
  }

  function end({ task, signal, started, startedAt, span }: Attempt, settlement: Settlement): Settlement {
    let outcome = settlement;
    try {
      span?.end(settlement.kind === "done" ? undefined : settlement.failure);
      if (!signal.aborted)
        outcome = { ...settlement, attempt: { startedAt, endedAt: clock.now(), trace: span?.trace } };
    } catch (error) {
      outcome = settlementForError(error, task, agent, context.random);
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
    const org = orgOf(task);
    const started = await start(org, AbortSignal.any([signal, unwanted.signal]));
    waiting.delete(task);
    if (started) return attempt(task, signal, started);
    if (unwanted.signal.aborted)
      return settlementForError(unwanted.signal.reason, task, agent, context.random);
    return signal.aborted ? NOT_STARTED : postponed(breakers.wait(org));
  }

  function supervisionOf(task: Task): Supervision {
    return {
      clock,
      timeoutMs: isRemote ? undefined : agent.timeoutMs,
      graceMs,
      onWatch: (tellToStop) => void stoppable.set(task, tellToStop),
      onAbandoned() {
        metrics.abandoned.add(1, { agent: agent.name });
        log.warn(
          { agent: agent.name, task: task.id, graceMs },
          "an attempt ignored its abort signal: pass the signal to what the agent awaits",
        );
      },
    };
  }

  function work(task: Task, trace: string | undefined, signal: AbortSignal): Promise<unknown> | unknown {
    if (!agent.options.run) return remote(task, signal);
    return agent.options.run(agentTask(task, trace, postOf(task, signal)), signal);
  }

  /** Posts to the task's conversation; undefined when it belongs to none. */
  function postOf(task: Task, signal: AbortSignal): TaskConversation | undefined {
    const conversation = conversationOf(task);
    const { postToConversation } = options;
    if (!conversation || !postToConversation) return undefined;
    const [{ id, org_id: org }] = task.artifacts;
    let posted = 0;
    return {
      convId: conversation.conv_id ?? "",
      async post(...events) {
        signal.throwIfAborted();
        const named = events.map(({ message, ...event }) => {
          if (!message || message.message_id) return message ? { message } : event;
          return { message: { ...message, message_id: derivedId(id, `${workKey(task)}:post:${posted++}`) } };
        });
        await postToConversation({ org, agent: agent.name, conversation }, named);
      },
    };
  }

  /** The org's tasks keep failing: this one is retried later, and those of other orgs run in the meantime. */
  function postponed(wait: number): Settlement {
    round.postponed++;
    // Spread, so that the tasks of a long queue do not all come back at once.
    const delayMs = Math.ceil(Math.min(wait, MAX_POSTPONED_MS) * (1 + context.random() / 2));
    return { ...POSTPONED, delayMs };
  }

  const consumer: AgentConsumer = {
    agent: agent.name,
    order: agent.order,
    strict: agent.strict,
    concurrency: agent.concurrency,
    away: isRemote,
    breakers,
    running: () => running,
    begun: (task) => !waiting.has(task),
    cancel(why) {
      for (const [task, tell] of [...waiting, ...stoppable]) {
        const reason = why(task);
        if (reason) tell(reason);
      }
    },

    async gate(signal) {
      const { postponed, started } = round;
      round = { postponed: 0, started: 0 };
      // Nothing else is queued: leave the tasks to a server whose breaker is closed. A long queue is passed without a pause.
      if (postponed > 0 && started === 0 && postponed < agent.concurrency)
        await sleep(clock, POSTPONED_PAUSE_MS, signal);
      for (let wait = 1; wait > 0 && !signal.aborted; ) {
        wait = rate.wait();
        if (wait > 0) await sleep(clock, wait, signal);
      }
    },

    handle(task, signal) {
      if (task.attempt > agent.retry.attempts) return workerLost(task);
      const org = orgOf(task);
      const wait = breakers.wait(org);
      if (wait > 0) return postponed(wait);
      const started = startAtOnce(org, signal);
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

/** A running attempt. */
interface Attempt {
  readonly task: Task;
  readonly signal: AbortSignal;
  readonly started: Started;
  readonly startedAt: number;
  span: ProcessSpan | undefined;
}

const NO_PLACE = () => undefined;
const NOTHING: Settlement = { kind: "done", outputs: [] };

/** The board ignores this settlement, because it has requeued the task. */
const NOT_STARTED: Settlement = {
  kind: "retry",
  delayMs: 0,
  failure: { class: "NotStarted", message: "The task was requeued before it started.", kind: "retryable" },
};

/** Another server may be able to run the task, so it is not kept from it for long. */
const MAX_POSTPONED_MS = 5_000;
const POSTPONED_PAUSE_MS = 1_000;
/** Long enough for the tasks that waited to be offered. */
const UNCLAIMED_MS = 1_000;
const POSTPONED: Settlement & { kind: "retry" } = {
  kind: "retry",
  uncounted: true,
  delayMs: 0,
  failure: {
    class: "BreakerOpen",
    message:
      "The circuit breaker is open: the agent failed too often in a row for this org. The task is retried later.",
    kind: "rate_limited",
  },
};

const orgOf = ({ artifacts }: Task) => artifacts[0].org_id;

/** The process died in every attempt, so no error is known. */
function workerLost({ attempt }: Task): Settlement {
  const message = `The task was started ${attempt - 1} times, and its process died each time.`;
  return { kind: "dead", failure: { class: "WorkerLost", message, kind: "fatal" } };
}

/** Only retryable errors count: a rate limit or a fatal error does not mean that the agent is unhealthy. */
function report(permit: Permit, settlement: Settlement, signal: AbortSignal): void {
  if (signal.aborted) permit.said("dropped");
  else if (settlement.kind === "done") permit.said("succeeded");
  else if (settlement.failure.kind !== "retryable") permit.said("dropped");
  else permit.said("failed");
}

/** The task as the agent sees it. A copy, so that changes by the agent do not reach its retry or dead letter. */
export function agentTask(
  task: Task,
  trace: string | undefined,
  conversation?: TaskConversation | undefined,
): AgentTask {
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
    conversation,
  };
}
