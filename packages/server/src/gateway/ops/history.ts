import type { OverviewHistoryJson, SampleJson } from "@khala/contracts/ops/v1";
import { isoTime } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { Service } from "../../kit/service.ts";
import type { SyncPlane } from "../../sync/plane.ts";
import { openProcessMonitor } from "./process_monitor.ts";
import { Rates } from "./rates.ts";

/** The load of the last hour, so that a chart has a history when it is opened. */
export interface History extends Service {
  read(): OverviewHistoryJson;
}

export interface HistoryOptions {
  readonly sync: Pick<SyncPlane, "hub">;
  /** The gateway's counters since the start. */
  readonly traffic: () => { readonly messages: number; readonly bytes: number; readonly errors: number };
}

const INTERVAL_MS = 10_000;
const SAMPLES = 3_600_000 / INTERVAL_MS;
/** Coarse, as it also runs without viewers. */
const RESOLUTION_MS = 100;

/** Takes a sample every ten seconds, from counters of this process alone: it asks no database. */
export function openHistory(context: Context, { sync, traffic }: HistoryOptions): History {
  const { clock } = context;
  const rates = new Rates(clock.now());
  const monitor = openProcessMonitor(clock, {
    resolutionMs: RESOLUTION_MS,
    restAfterMs: 2 * INTERVAL_MS,
  });
  const samples: SampleJson[] = [];
  let isStopped = false;
  let cancel = () => {};

  async function take(): Promise<void> {
    const { sum } = await context.telemetry.metricValues();
    const now = clock.now();
    const { messages, bytes, errors } = traffic();
    let updates = 0n;
    for (const { head } of sync.hub.lastPoll().heads?.topics.values() ?? []) updates += head;
    const rate = rates.at(now);
    samples.push({
      at: isoTime(now),
      messages_per_s: rate("messages", messages),
      bytes_per_s: rate("bytes", bytes),
      errors_per_s: rate("errors", errors),
      // Before the heads are known there is no rate, and at first no past to compare them with.
      updates_per_s: updates > 0n ? rate("updates", Number(updates), Number(updates)) : 0,
      events_per_s: rate("events", sum("khala_conversation_reads_total")),
      tasks_per_s: rate("tasks", sum("khala_board_tasks_total")),
      ...monitor.sample(),
    });
    if (samples.length > SAMPLES) samples.shift();
  }

  function next(): void {
    if (isStopped) return;
    cancel = clock.after(INTERVAL_MS, () => {
      take()
        .catch((error: Error) => context.log.debug({ err: error.message }, "a sample of the load is missing"))
        .then(next, next);
    });
  }
  next();

  return {
    read: () => ({ samples, interval_s: INTERVAL_MS / 1_000 }),
    async stop() {
      isStopped = true;
      cancel();
      monitor.stop();
    },
  };
}
