import { backoff } from "../../kit/backoff.ts";
import type { Context } from "../../kit/context.ts";
import type { Service } from "../../kit/service.ts";
import type { Board, Consumer } from "../board.ts";
import type { Agent } from "../model/agent.ts";
import { failureOf } from "../model/errors.ts";
import type { Settlement, Task } from "../model/task.ts";
import type { Remote } from "../remote/remote.ts";
import { approvalRules } from "../waiting/approval_rules.ts";
import type { Approvals } from "../waiting/approvals.ts";
import type { Controls } from "../waiting/controls.ts";
import type { CorrelationPause } from "../waiting/controls_state.ts";
import { type Gather, incompleteJoin, isGathered } from "../waiting/gather.ts";
import { isAffectedByPause, type Parked } from "../waiting/parked.ts";
import type { BreakerState } from "./breaker.ts";
import { cancellationOf, cancelledSettlement } from "./cancellation.ts";
import { type AgentConsumer, type AgentParts, openAgentConsumer } from "./execution.ts";
import { settlementForError } from "./retry_policy.ts";

/** The parts that agents need to run. */
export interface WorkerParts {
  readonly shared: AgentParts;
  readonly controls: Controls;
  readonly gather: Pick<Gather, "add">;
  readonly approvals: Pick<Approvals, "hold">;
  readonly parked: Pick<Parked, "holds">;
  readonly remote: Pick<Remote, "work">;
}

/** The agents that run in this process. */
export interface Workers extends Service {
  /** Starts to claim tasks. Does nothing in a process that runs no agents. */
  start(): void;
  /** The state of an agent for an org, or the worst of all: "running", "paused", "open" or "half_open". */
  stateOf(agent: string, org?: string): string;
}

const SHOWN: Readonly<Record<BreakerState, string>> = {
  closed: "running",
  open: "open",
  half_open: "half_open",
};
/** The task waits elsewhere or is over, so it leaves the queue. */
const TAKEN_OFF: Settlement = { kind: "done", outputs: [], aside: true };

/** Opens all agents. A process that runs none only reports their state. */
export function openWorkers(
  board: Board,
  context: Context,
  agents: readonly Agent[],
  works: boolean,
  parts: WorkerParts,
): Workers {
  const { controls, shared, remote } = parts;
  const consumers = new Map<string, AgentConsumer>();
  const running: Service[] = [];
  const why = (task: Task) => cancellationOf(controls, task);
  const unlisten = [
    controls.onCancel(() => {
      for (const consumer of consumers.values()) consumer.cancel(why);
    }),
    controls.onCancelAgent((agent) => consumers.get(agent)?.cancel(why)),
  ];
  for (const agent of works ? agents : []) {
    consumers.set(agent.name, openAgentConsumer(context, shared, agent, remote.work));
  }
  return {
    start() {
      for (const agent of works ? agents : [])
        running.push(board.consume(withControls(context, agent, consumers.get(agent.name)!, parts)));
    },
    stateOf(agent, org) {
      if (controls.paused(agent)) return "paused";
      return SHOWN[consumers.get(agent)?.breakers.state(org) ?? "closed"];
    },
    async stop() {
      await Promise.all(running.map((service) => service.stop()));
      for (const each of unlisten) each();
    },
  };
}

/** Applies pauses, cancellations, joins and approvals before a task runs. */
function withControls(context: Context, agent: Agent, consumer: AgentConsumer, parts: WorkerParts): Consumer {
  const { controls, gather, approvals, parked } = parts;
  const { batch, join, approval = false } = agent.options;
  const mayWait = batch !== undefined || join !== undefined || approval !== false;

  /** Moves the task to a waiting list if it needs other artifacts or an approval first. */
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

  async function handleWaiting(
    task: Task,
    signal: AbortSignal,
    pause: CorrelationPause | undefined,
  ): Promise<Settlement> {
    const reason = cancellationOf(controls, task);
    try {
      if (isAffectedByPause(task, pause) && (await parked.holds(task, reason ? undefined : pause)))
        return TAKEN_OFF;
      const incomplete = !reason && isGathered(task) && incompleteJoin(agent, task);
      if (incomplete) return { kind: "dead", failure: incomplete };
      if (!reason && mayWait && (await takeOff(task))) return TAKEN_OFF;
    } catch (error) {
      if (error instanceof RuleError) return settlementForError(error.cause, task, agent, context.random);
      // The store is not reachable. That is not a failure of the task, so it is retried without limit.
      const delayMs = Math.ceil(backoff(task.attempt, context.random, agent.retry));
      return { kind: "retry", failure: failureOf(error, "retryable"), delayMs };
    }
    return work(task, signal);
  }

  function work(task: Task, signal: AbortSignal): Promise<Settlement> | Settlement {
    const reason = cancellationOf(controls, task);
    return reason ? cancelledSettlement(reason) : consumer.handle(task, signal);
  }

  return {
    ...consumer,
    async gate(signal) {
      await controls.gate(agent.name, signal);
      await consumer.gate(signal);
    },

    handle(task, signal) {
      const [{ org_id: org, correlation_id: correlation }] = task.artifacts;
      const pause = controls.correlationPause(org, correlation);
      if (mayWait || isAffectedByPause(task, pause)) return handleWaiting(task, signal, pause);
      return work(task, signal);
    },
  };
}

/** A rule of the user threw. */
class RuleError extends Error {}

function needsApproval(agent: Agent, task: Task): boolean {
  try {
    return approvalRules(agent, task).length > 0;
  } catch (cause) {
    throw new RuleError("approval threw", { cause });
  }
}
