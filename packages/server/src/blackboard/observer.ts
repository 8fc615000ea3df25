import type { BoardObserver } from "./board.ts";
import type { BoardMetrics } from "./metrics.ts";
import type { BoardSpans } from "./spans.ts";
import { gotten } from "./tally.ts";
import type { Task } from "./task.ts";

/** What the settlement of an attempt wants to know of its work. */
export interface Ended {
  readonly startedAt: number;
  readonly endedAt: number;
  /** W3C trace context of the work. */
  readonly trace: string | undefined;
}

/** Attempts that have ended and are not settled yet. */
export interface EndedAttempts {
  add(task: Task, ended: Ended): void;
  take(task: Task): Ended | undefined;
}

/** What is settled by nobody, since the task was lost, is forgotten when so many of its agent came after it. */
const MAX_ENDED = 10_000;

/** Opens the list of ended attempts, empty. */
export function openEndedAttempts(): EndedAttempts {
  const agents = new Map<string, Map<string, { readonly attempt: number; readonly ended: Ended }>>();
  const nameOf = ({ id, replay_id }: Task) => (replay_id ? `${id}:${replay_id}` : id);
  return {
    add(task, ended) {
      const attempts = gotten(agents, task.agent, () => new Map());
      if (attempts.size >= MAX_ENDED) attempts.delete(attempts.keys().next().value!);
      attempts.set(nameOf(task), { attempt: task.attempt, ended });
    },
    take(task) {
      const attempts = agents.get(task.agent);
      const name = nameOf(task);
      const last = attempts?.get(name);
      if (last?.attempt !== task.attempt) return undefined;
      attempts!.delete(name);
      return last.ended;
    },
  };
}

/** Turns what the board did into metrics and spans. */
export function boardObserver(metrics: BoardMetrics, spans: BoardSpans, ended: EndedAttempts): BoardObserver {
  return {
    published(artifacts) {
      for (const { type } of artifacts) metrics.published(type);
    },
    routed(artifact, tasks) {
      for (const { agent } of tasks) metrics.routed(agent);
      spans.routed(artifact, tasks);
    },
    settled(task, settlement, place) {
      if (settlement.kind === "done" && settlement.aside) return;
      const { agent } = task;
      const timing = metrics.settled(agent, settlement.kind, place.partition);
      if (settlement.kind === "retry") metrics.retries.add(1, { agent, kind: settlement.failure.kind });
      if (settlement.kind === "dead") metrics.deadLetters.add(1, { agent });
      const attempt = ended.take(task);
      if (!attempt) return;
      timing.record(attempt.endedAt - attempt.startedAt);
      spans.settled(task, settlement, place, attempt.endedAt, attempt.trace);
    },
    repeated(task) {
      metrics.dedupHits.add(1, { agent: task.agent });
    },
  };
}

/** Tells all of these, in order; more may be added later. */
export function everyObserver(observers: readonly BoardObserver[]): BoardObserver {
  return {
    published(artifacts) {
      for (const each of observers) each.published(artifacts);
    },
    routed(artifact, tasks) {
      for (const each of observers) each.routed(artifact, tasks);
    },
    settled(task, settlement, place) {
      for (const each of observers) each.settled(task, settlement, place);
    },
    repeated(task) {
      for (const each of observers) each.repeated(task);
    },
  };
}
