import type { Meter } from "@opentelemetry/api";
import { durations } from "../kit/telemetry.ts";

/** The metrics of the conversation plane. None has a label per conversation: there are too many. */
export function conversationMetrics(meter: Meter) {
  const counter = (name: string, description: string) => meter.createCounter(name, { description });
  const gauge = (name: string, description: string) => meter.createObservableGauge(name, { description });
  /** For the hot path: counting is an addition, and a scrape reads the sum. */
  const tally = (name: string, description: string) => {
    const counted = { count: 0 };
    meter
      .createObservableCounter(name, { description })
      .addCallback((result) => result.observe(counted.count));
    return counted;
  };
  const metrics = {
    active: gauge("khala_conversations", "Conversations that this server reads or runs"),
    readers: gauge("khala_conversation_readers", "Readers of conversations on this server"),
    sockets: gauge("khala_conversation_sockets", "Sockets that are attached to a conversation"),
    lag: gauge(
      "khala_conversation_lag",
      "Entries that were appended and not yet broadcast, by our own sequence",
    ),
    pending: gauge(
      "khala_conversation_pending",
      "Entries that a program read from the group ui and did not acknowledge",
    ),
    reads: tally("khala_conversation_reads_total", "Entries read by this server's readers"),
    broadcasts: tally("khala_conversation_broadcasts_total", "Frames sent to sockets live"),
    gapReads: counter(
      "khala_conversation_gap_reads_total",
      "Reads of a log because entries were or may be missing",
    ),
    slowCloses: counter(
      "khala_conversation_slow_closes_total",
      "Sockets closed because they read too slowly",
    ),
    replays: counter("khala_conversation_replays_total", "Attachments that asked for history"),
    resyncs: counter("khala_conversation_resyncs_total", "Resyncs sent to clients, by reason"),
    runs: counter("khala_conversation_runs_total", "Runs that ended, by outcome"),
    running: gauge("khala_conversation_runs_running", "Active runs on this server"),
    takeovers: counter("khala_conversation_takeovers_total", "Runs of dead servers that were marked failed"),
    engines: gauge("khala_conversation_engines", "Engines that are kept for their conversations"),
    trims: counter("khala_conversation_trimmed_entries_total", "Entries removed by retention"),
    deletions: counter("khala_conversation_deletions_total", "Conversations removed, by cause"),
    appendMs: durations(
      meter,
      "khala_conversation_append_seconds",
      "Time from an engine's event until it is in the log",
    ),
  };
  // Alerts see the first failure as an increase only if the series starts at zero.
  const { gapReads, slowCloses, replays, takeovers, trims } = metrics;
  for (const each of [gapReads, slowCloses, replays, takeovers, trims]) each.add(0);
  for (const reason of ["trimmed", "deleted", "foreign_cursor"]) metrics.resyncs.add(0, { reason });
  for (const outcome of ["finished", "failed", "stopped", "waiting", "lost"])
    metrics.runs.add(0, { outcome });
  for (const cause of ["request", "age", "unfinished"]) metrics.deletions.add(0, { cause });
  return metrics;
}

/** The instruments of the conversation plane. */
export type ConversationMetrics = ReturnType<typeof conversationMetrics>;
