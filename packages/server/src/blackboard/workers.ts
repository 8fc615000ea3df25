import { backoff } from "../kit/backoff.ts";
import type { Context } from "../kit/context.ts";
import type { Service } from "../kit/service.ts";
import type { Agent } from "./agent.ts";
import type { Approvals } from "./approvals.ts";
import type { Board, Consumer } from "./board.ts";
import type { BreakerState } from "./breaker.ts";
import type { Controls } from "./controls.ts";
import type { AgentConsumer, Executor } from "./execution.ts";
import { failureOf } from "./failures.ts";
import { type Gather, isGathered } from "./gather.ts";
import type { Remote } from "./remote.ts";
import type { Settlement, Task } from "./task.ts";
import { verdictOn } from "./verdict.ts";

/** What the work of agents needs. */
export interface WorkerParts {
  readonly executor: Executor;
  readonly controls: Controls;
  readonly gather: Pick<Gather, "add">;
  readonly approvals: Pick<Approvals, "hold">;
  readonly remote: Pick<Remote, "work">;
}

/** The agents at work in this process. */
export interface Workers extends Service {
  /** How an agent is: "running", "paused", "open" or "half_open". */
  stateOf(agent: string): string;
}

const SHOWN: Readonly<Record<BreakerState, string>> = {
  closed: "running",
  open: "open",
  half_open: "half_open",
};
/** Elsewhere the task goes on, or is over: here nothing is left of it. */
const TAKEN_OFF: Settlement = { kind: "done", outputs: [] };

/** Starts the work of all agents, or only says how they are when this process does none. */
export function startWorkers(
  board: Board,
  context: Context,
  agents: readonly Agent[],
  works: boolean,
  parts: WorkerParts,
): Workers {
  const { controls, executor, remote } = parts;
  const consumers = new Map<string, AgentConsumer>();
  const running: Service[] = [];
  const cancellable = new Set<Cancellable>();
  const unlisten = controls.onCancel((org, correlation) => {
    for (const each of cancellable)
      if (each.org === org && each.correlation === correlation) each.stop.abort(CANCELLED);
  });
  for (const agent of works ? agents : []) {
    const consumer = executor.consumer(agent, agent.options.run ? undefined : remote.work);
    consumers.set(agent.name, consumer);
    running.push(board.consume(withControls(context, agent, consumer, parts, cancellable)));
  }
  return {
    stateOf(agent) {
      if (controls.paused(agent)) return "paused";
      return SHOWN[consumers.get(agent)?.state() ?? "closed"];
    },
    async stop() {
      await Promise.all(running.map((service) => service.stop()));
      unlisten();
    },
  };
}

/** Work under way that a person may cancel. */
interface Cancellable {
  readonly org: string;
  readonly correlation: string;
  readonly stop: AbortController;
}

/** Why work was told to stop. */
const CANCELLED = new DOMException("The correlation was cancelled.", "AbortError");

/** Puts what people and other artifacts decide before the work. */
function withControls(
  context: Context,
  agent: Agent,
  consumer: AgentConsumer,
  parts: WorkerParts,
  cancellable: Set<Cancellable>,
): Consumer {
  const { controls, gather, approvals } = parts;
  const { batch, join, approval = false } = agent.options;
  const mayWait = batch !== undefined || join !== undefined || approval !== false;

  /** Takes the task off the flow if it has to wait for others or for a person first. */
  async function takeOff(task: Task): Promise<boolean> {
    if ((batch || join) && !isGathered(task)) {
      await gather.add(agent, task);
      return true;
    }
    if (task.approved_by === undefined && needsApproval(agent, task)) {
      await approvals.hold(task);
      return true;
    }
    return false;
  }

  async function handleWaiting(task: Task, signal: AbortSignal): Promise<Settlement> {
    try {
      if (await takeOff(task)) return TAKEN_OFF;
    } catch (error) {
      if (error instanceof RuleError) return verdictOn(error.cause, task, agent, context.random);
      // The store is away: that is no failure of the task, however long it lasts.
      const delayMs = Math.ceil(backoff(task.attempt, context.random, agent.retry));
      return { kind: "retry", failure: failureOf(error, "retryable"), delayMs };
    }
    return work(task, signal);
  }

  /** Only what belongs to a correlation can be cancelled. */
  function work(task: Task, signal: AbortSignal): Promise<Settlement> {
    const [{ org_id: org, correlation_id: correlation }] = task.artifacts;
    if (correlation === undefined) return consumer.handle(task, signal);
    // It may have been cancelled while the task was looked at.
    if (controls.cancelled(org, correlation)) return Promise.resolve(cancelled(correlation));
    return workUntilCancelled(task, signal, { org, correlation, stop: new AbortController() });
  }

  async function workUntilCancelled(
    task: Task,
    signal: AbortSignal,
    running: Cancellable,
  ): Promise<Settlement> {
    const { stop } = running;
    const lost = () => stop.abort(signal.reason);
    if (signal.aborted) lost();
    signal.addEventListener("abort", lost, { once: true });
    cancellable.add(running);
    try {
      const settlement = await consumer.handle(task, stop.signal);
      const wasCancelled = stop.signal.aborted && stop.signal.reason === CANCELLED;
      return wasCancelled && settlement.kind !== "done" ? cancelled(running.correlation) : settlement;
    } finally {
      cancellable.delete(running);
      signal.removeEventListener("abort", lost);
    }
  }

  return {
    ...consumer,
    async gate(signal) {
      await controls.gate(agent.name, signal);
      await consumer.gate(signal);
    },

    handle(task, signal) {
      if (!mayWait) return work(task, signal);
      const [{ org_id: org, correlation_id: correlation }] = task.artifacts;
      if (controls.cancelled(org, correlation)) return Promise.resolve(cancelled(correlation));
      return handleWaiting(task, signal);
    },
  };
}

/** The user's own rule threw. */
class RuleError extends Error {}

function needsApproval(agent: Agent, { artifacts }: Task): boolean {
  const { approval = false } = agent.options;
  if (typeof approval === "boolean") return approval;
  try {
    return artifacts.some((artifact) => approval(artifact));
  } catch (cause) {
    throw new RuleError("approval threw", { cause });
  }
}

/** Parked, so that resuming the correlation runs it. */
function cancelled(correlation: string | undefined): Settlement {
  const message = `The correlation "${correlation}" was cancelled. Resume it to run this.`;
  return { kind: "dead", failure: { class: "Cancelled", message, kind: "fatal" } };
}
