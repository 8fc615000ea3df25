import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import type { Context } from "../../kit/context.ts";
import { durations, type Telemetry } from "../../kit/telemetry.ts";
import { ROUTER } from "../model/names.ts";
import type { BreakerState, Breakers } from "../work/breaker.ts";
import type { Slots } from "../work/slots.ts";

const LAG_AGE_MS = 5_000;
const BREAKER: Record<BreakerState, number> = { closed: 0, half_open: 1, open: 2 };

/**
 * The metrics of the blackboard: rate, errors and duration by agent and partition, and what is queued. `types` are the
 * artifact types that the app itself names.
 */
export function boardMetrics(
  { meter }: Pick<Telemetry, "meter">,
  agents: readonly string[],
  types: readonly string[] = [],
) {
  const counter = (name: string, description: string) => meter.createCounter(name, { description });
  const gauge = (name: string, description: string) => meter.createObservableGauge(name, { description });
  const artifacts = counter("khala_board_artifacts_total", "Artifacts published by this server, by type");
  const named = new Set(types);
  const metrics = {
    routed: counter("khala_board_routed_total", "Tasks that this server created, by agent"),
    tasks: counter("khala_board_tasks_total", "Attempts settled, by agent, outcome and partition"),
    taskMs: durations(
      meter,
      "khala_board_task_seconds",
      "Duration of one attempt of an agent, by agent, outcome and partition",
    ),
    retries: counter("khala_board_retries_total", "Attempts that are retried, by agent and kind of failure"),
    deadLetters: counter(
      "khala_board_dead_letters_total",
      "Tasks that became dead letters, and records that could not be decoded, by agent",
    ),
    dedupHits: counter(
      "khala_board_dedup_hits_total",
      "Tasks delivered again after they were settled, by agent",
    ),
    timeouts: counter("khala_board_timeouts_total", "Attempts that timed out, by agent"),
    abandoned: counter("khala_board_abandoned_total", "Attempts that ignored their abort signal, by agent"),
    running: gauge("khala_board_running", "Tasks running on this server, by agent"),
    breaker: gauge(
      "khala_board_breaker",
      "The worst of an agent's circuit breakers, of which each org has one: 0 closed, 1 half open, 2 open",
    ),
    breakersOpen: gauge("khala_board_breakers_open", "Orgs whose circuit breaker is not closed, by agent"),
    slotsFree: gauge("khala_board_slots_free", "Free execution slots on this server"),
    slotsWaiting: gauge("khala_board_slots_waiting", "Tasks that wait for an execution slot on this server"),
    lag: gauge("khala_board_lag", "Records that a reader has not read yet, by reader and partition"),
    lagHigh: gauge("khala_board_lag_high", "The same, including records held back by open transactions"),
    /** Counts an artifact. Publishers of every org choose types, which must stay private here: all of them share one label. */
    published(type: string): void {
      artifacts.add(1, { type: named.has(type) ? type : "other" });
    },
  };
  // A rate is only computed from a series that exists, so every counter starts at zero.
  metrics.deadLetters.add(0, { agent: ROUTER });
  const { routed, retries, deadLetters, dedupHits, timeouts, abandoned } = metrics;
  for (const agent of agents) {
    for (const each of [routed, deadLetters, dedupHits, timeouts, abandoned]) each.add(0, { agent });
    for (const kind of ["retryable", "rate_limited"]) retries.add(0, { agent, kind });
  }
  return metrics;
}

/** The instruments of the blackboard. */
export type BoardMetrics = ReturnType<typeof boardMetrics>;

/** Reports the execution slots of this process at every scrape. */
export function showSlots(metrics: BoardMetrics, slots: Slots): void {
  metrics.slotsFree.addCallback((result) => result.observe(slots.free));
  metrics.slotsWaiting.addCallback((result) => result.observe(slots.waiting));
}

/** Reports an agent's breaker and its running tasks at every scrape. */
export function showAgent(
  metrics: BoardMetrics,
  agent: string,
  { breakers, running }: { readonly breakers: Pick<Breakers, "state" | "open">; running(): number },
): void {
  metrics.breaker.addCallback((result) => result.observe(BREAKER[breakers.state()], { agent }));
  metrics.breakersOpen.addCallback((result) => result.observe(breakers.open(), { agent }));
  metrics.running.addCallback((result) => result.observe(running(), { agent }));
}

/** Reads lag at most every few seconds, however many callers there are. */
export function cachedLag(
  board: { lag(): Promise<readonly PartitionLagJson[]> },
  { clock }: Pick<Context, "clock">,
  maxAgeMs = LAG_AGE_MS,
): () => Promise<readonly PartitionLagJson[]> {
  let at = Number.NEGATIVE_INFINITY;
  let last: Promise<readonly PartitionLagJson[]> | undefined;
  return () => {
    if (!last || clock.now() - at >= maxAgeMs) {
      at = clock.now();
      last = board.lag();
      // The next caller tries again.
      last.catch(() => {
        last = undefined;
      });
    }
    return last;
  };
}

/** Reports lag at every scrape. A failed read is logged and skipped, so that the other metrics are still served. */
export function showLag(
  metrics: BoardMetrics,
  { log }: Pick<Context, "log">,
  lag: () => Promise<readonly PartitionLagJson[]>,
): void {
  const show = async (gauge: "lag" | "lagHigh", field: "lag" | "lag_high") => {
    metrics[gauge].addCallback(async (result) => {
      try {
        for (const { reader = "", topic = "", partition = 0, [field]: records = "0" } of await lag()) {
          result.observe(Number(records), { reader, topic, partition });
        }
      } catch (error) {
        log.warn({ err: (error as Error).message }, "could not read the board's lag");
      }
    });
  };
  show("lag", "lag");
  show("lagHigh", "lag_high");
}
