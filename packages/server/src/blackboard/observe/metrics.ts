import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import type { Attributes } from "@opentelemetry/api";
import type { Context } from "../../kit/context.ts";
import type { Telemetry } from "../../kit/telemetry.ts";
import { ROUTER } from "../model/names.ts";
import type { Settlement } from "../model/task.ts";
import type { BreakerState } from "../work/breaker.ts";
import type { Slots } from "../work/slots.ts";
import { gotten, openTally, type Series } from "./tally.ts";

/** Types of artifacts that are counted by name: publishers make them up, and each would be a series. */
const MAX_TYPES = 100;
const LAG_AGE_MS = 5_000;
const BREAKER: Record<BreakerState, number> = { closed: 0, half_open: 1, open: 2 };

/** What the blackboard counts: rate, errors and duration by agent and partition, and what waits. */
export function boardMetrics({ meter }: Pick<Telemetry, "meter">, agents: readonly string[]) {
  const counter = (name: string, description: string) => meter.createCounter(name, { description });
  const gauge = (name: string, description: string) => meter.createObservableGauge(name, { description });
  const artifacts = openTally(
    meter,
    "khala_board_artifacts_total",
    "Artifacts published by this server, by type",
  );
  const types = new Map<string, Series>();
  const tasks = openTally(
    meter,
    "khala_board_tasks_total",
    "Attempts settled, by agent, outcome and partition",
  );
  const taskMs = meter.createHistogram("khala_board_task_ms", {
    unit: "ms",
    description: "One attempt of an agent's work, by agent, outcome and partition",
  });
  const attempts = (labels: Attributes): Attempts => ({
    tasks: tasks(labels),
    ms: { record: (ms) => taskMs.record(ms, labels) },
  });
  const settled = new Map<string, Map<number, { [Outcome in Settlement["kind"]]?: Attempts }>>();
  const tasksMade = openTally(
    meter,
    "khala_board_routed_total",
    "Tasks made by this server's router, by agent",
  );
  const routed = new Map<string, Series>();
  const metrics = {
    retries: counter(
      "khala_board_retries_total",
      "Attempts that will be repeated, by agent and kind of failure",
    ),
    deadLetters: counter(
      "khala_board_dead_letters_total",
      "Tasks that became dead letters, and records that could not be read, by agent",
    ),
    dedupHits: counter(
      "khala_board_dedup_hits_total",
      "Tasks that came again after they were settled, by agent",
    ),
    timeouts: counter("khala_board_timeouts_total", "Attempts that took too long, by agent"),
    abandoned: counter(
      "khala_board_abandoned_total",
      "Attempts that did not stop when they were told to, by agent",
    ),
    running: gauge("khala_board_running", "Tasks that this server works on, by agent"),
    breaker: gauge("khala_board_breaker", "An agent's breaker: 0 closed, 1 half open, 2 open"),
    slotsFree: gauge("khala_board_slots_free", "Places for tasks that are free on this server"),
    slotsWaiting: gauge("khala_board_slots_waiting", "Tasks that wait for a place on this server"),
    lag: gauge("khala_board_lag", "Records that a reader can read and has not, by reader and partition"),
    lagHigh: gauge("khala_board_lag_high", "The same, with what open transactions hold back"),
    /** One label for all types beyond the first hundred. */
    published(type: string): void {
      const named = types.has(type) || types.size < MAX_TYPES ? type : "other";
      gotten(types, named, () => artifacts({ type: named })).count++;
    },
    routed(agent: string, count = 1): void {
      gotten(routed, agent, () => tasksMade({ agent })).count += count;
    },
    /** Counts an attempt, and returns where to record its duration. */
    settled(agent: string, outcome: Settlement["kind"], partition: number): Attempts["ms"] {
      const byPartition = gotten(settled, agent, () => new Map());
      const byOutcome = gotten(byPartition, partition, () => ({}));
      byOutcome[outcome] ??= attempts({ agent, outcome, partition });
      byOutcome[outcome].tasks.count++;
      return byOutcome[outcome].ms;
    },
  };
  // A first failure is a rise only from a zero.
  metrics.deadLetters.add(0, { agent: ROUTER });
  const { retries, deadLetters, dedupHits, timeouts, abandoned } = metrics;
  for (const agent of agents) {
    metrics.routed(agent, 0);
    for (const each of [deadLetters, dedupHits, timeouts, abandoned]) each.add(0, { agent });
    for (const kind of ["retryable", "rate_limited"]) retries.add(0, { agent, kind });
  }
  return metrics;
}

/** The attempts of an agent with one outcome. */
interface Attempts {
  readonly tasks: Series;
  readonly ms: { record(ms: number): void };
}

/** The instruments of the blackboard. */
export type BoardMetrics = ReturnType<typeof boardMetrics>;

/** Shows the places of this process at every scrape. */
export function showSlots(metrics: BoardMetrics, slots: Slots): void {
  metrics.slotsFree.addCallback((result) => result.observe(slots.free));
  metrics.slotsWaiting.addCallback((result) => result.observe(slots.waiting));
}

/** Shows an agent's breaker, and how many of its tasks run. */
export function showAgent(
  metrics: BoardMetrics,
  agent: string,
  { state, running }: { state(): BreakerState; running(): number },
): void {
  metrics.breaker.addCallback((result) => result.observe(BREAKER[state()], { agent }));
  metrics.running.addCallback((result) => result.observe(running(), { agent }));
}

/** Reads lag at most every few seconds, however many ask. */
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
      // The next one asks again.
      last.catch(() => {
        last = undefined;
      });
    }
    return last;
  };
}

/** Shows lag at every scrape. What cannot be read is left out and said in the log: the other metrics are not to blame. */
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
        log.warn({ err: (error as Error).message }, "the board's lag could not be read");
      }
    });
  };
  show("lag", "lag");
  show("lagHigh", "lag_high");
}
