import type { Meter } from "@opentelemetry/api";
import { durations } from "../kit/telemetry.ts";

/** The metrics of the sync plane; docs/sync/METRICS.md lists them. */
export type SyncMetrics = ReturnType<typeof syncMetrics>;

/** Creates the instruments. The topics' counters start at 0, so that alerts see the first failure. */
export function syncMetrics(meter: Meter, topics: readonly string[] = []) {
  const counter = (name: string, description: string) =>
    meter.createCounter(`khala_sync_${name}`, { description });
  const duration = (name: string, description: string) => durations(meter, `khala_sync_${name}`, description);
  const metrics = {
    appends: counter("appends_total", "Requests that appended authority events, by outcome"),
    writes: counter("document_writes_total", "Documents written, by topic"),
    writeFailures: counter(
      "write_failures_total",
      "Sink transactions that failed (watermarks not allocated), by topic",
    ),
    updates: counter("updates_total", "Journal rows read into the hot tail, by topic"),
    pushes: counter("pushes_total", "Frames with updates handed to sockets, by topic"),
    retried: counter(
      "pushes_retried_total",
      "Pushes that found a full socket and are read again later, by topic",
    ),
    dropped: counter(
      "pushes_dropped_total",
      "Subscriptions dropped because their socket stayed too slow, by topic",
    ),
    resumes: counter("resumes_total", "Subscriptions resumed with a cursor (reconnects), by topic"),
    stale: counter("stale_cursors_total", "Cursors answered with stale_cursor, by topic and reason"),
    reads: counter("journal_reads_total", "Reads of the journal, by topic"),
    readFailures: counter("read_failures_total", "Reads of the journal that failed, by topic"),
    replayBatch: duration("replay_batch_seconds", "Time to read and encode one replay batch"),
    catchUp: duration("catch_up_seconds", "Time from a subscribe with a cursor until it was live"),
    commitToPush: duration("commit_to_push_seconds", "Time from the journal row to the first push of it"),
    retention: counter("retention_runs_total", "Retention passes, by outcome"),
    mirror: counter("mirror_updates_total", "Updates sent to the mirror, by topic and outcome"),
  };
  const { writes, writeFailures, updates, pushes, retried, dropped, resumes, reads, readFailures } = metrics;
  const byTopic = [writes, writeFailures, updates, pushes, retried, dropped, resumes, reads, readFailures];
  for (const topic of topics) {
    for (const each of byTopic) each.add(0, { topic });
    for (const reason of ["epoch", "purged", "future"]) metrics.stale.add(0, { topic, reason });
    for (const outcome of ["published", "failed"]) metrics.mirror.add(0, { topic, outcome });
  }
  for (const outcome of ["ok", "failed"]) metrics.retention.add(0, { outcome });
  metrics.appends.add(0, { outcome: "ok" });
  return metrics;
}
