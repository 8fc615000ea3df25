import type { BoardObserver } from "../board_options.ts";
import type { BoardMetrics } from "./metrics.ts";
import type { BoardSpans } from "./spans.ts";

/** Records the board's activity as metrics and spans. */
export function boardObserver(metrics: BoardMetrics, spans: BoardSpans): BoardObserver {
  return {
    published(artifacts) {
      for (const { type } of artifacts) metrics.published(type);
    },
    routed(artifact, tasks, place) {
      for (const { agent } of tasks) metrics.routed.add(1, { agent });
      spans.routed(artifact, tasks, place);
    },
    settled(task, settlement, place) {
      if (settlement.kind === "done" && settlement.aside) return;
      if (settlement.kind === "retry" && settlement.uncounted) return;
      const { agent } = task;
      const labels = { agent, outcome: settlement.kind, partition: place.partition };
      metrics.tasks.add(1, labels);
      if (settlement.kind === "retry") metrics.retries.add(1, { agent, kind: settlement.failure.kind });
      if (settlement.kind === "dead") metrics.deadLetters.add(1, { agent });
      const { attempt } = settlement;
      if (!attempt) return;
      metrics.taskMs.record(attempt.endedAt - attempt.startedAt, labels);
      spans.settled(task, settlement, place, attempt.endedAt, attempt.trace);
    },
    repeated(task) {
      metrics.dedupHits.add(1, { agent: task.agent });
    },
    unreadable(agent) {
      metrics.deadLetters.add(1, { agent });
    },
  };
}

/** Calls each observer in order. Observers may be added later. */
export function everyObserver(observers: readonly BoardObserver[]): BoardObserver {
  return {
    published(artifacts) {
      for (const each of observers) each.published(artifacts);
    },
    routed(artifact, tasks, place) {
      for (const each of observers) each.routed(artifact, tasks, place);
    },
    settled(task, settlement, place) {
      for (const each of observers) each.settled(task, settlement, place);
    },
    repeated(task) {
      for (const each of observers) each.repeated(task);
    },
    unreadable(agent) {
      for (const each of observers) each.unreadable?.(agent);
    },
  };
}
