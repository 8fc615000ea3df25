import type { BatchObservableResult, Observable } from "@opentelemetry/api";
import type { Database } from "../database/database.ts";
import type { Authority } from "../events/authority.ts";
import type { Context } from "../kit/context.ts";
import type { Hub } from "./read/hub.ts";
import type { ProjectorState } from "./write/projector.ts";

export interface ObserveOptions {
  readonly database: Database;
  readonly hub: Hub;
  readonly authority: Authority;
  readonly projections: () => readonly ProjectorState[];
  readonly stallMs: number;
  readonly retentionMs: number;
}

/** Reports topics, journals and projections at every scrape. The returned function stops it. */
export function observeSync(context: Context, options: ObserveOptions): () => void {
  const { meter } = context.telemetry;
  const gauge = (name: string, description: string) =>
    meter.createObservableGauge(`khala_sync_${name}`, { description });
  const head = gauge("topic_head", "Newest watermark in the database, by topic");
  const floor = gauge("oldest_watermark", "Lowest position that clients can resume from, by topic");
  const lag = gauge("topic_lag", "Journal rows that this server has not read yet, by topic");
  const stalled = gauge("topic_stalled", "1 while a backlog has not moved for KHALA_STALL_S, by topic");
  const live = gauge("live_subscriptions", "Subscriptions that are live, by topic");
  const rows = gauge("journal_rows", "Rows of the journal, by topic");
  const age = gauge("journal_oldest_age_seconds", "Age of the oldest journal row in seconds, by topic");
  const bytes = gauge("journal_bytes", "Size of the journal on disk, indexes included");
  const position = gauge(
    "projection_lag",
    "Authority events that a projection has not applied yet, by topic",
  );
  const failed = gauge("failed_streams", "Streams that a projection has set aside, by topic");
  const keep = gauge("retention_keep_seconds", "Age at which retention removes a journal row, in seconds");
  const polled = gauge("poll_age_seconds", "Seconds since the database last answered this server");
  const all: Observable[] = [
    head,
    floor,
    lag,
    stalled,
    live,
    rows,
    age,
    bytes,
    position,
    failed,
    keep,
    polled,
  ];

  const started = context.clock.now();

  async function observe(result: BatchObservableResult): Promise<void> {
    result.observe(keep, options.retentionMs / 1_000);
    result.observe(polled, (context.clock.now() - (options.hub.lastPoll().at || started)) / 1_000);
    for (const feed of options.hub.open()) {
      const attributes = { topic: feed.model.topic };
      const { rows: behind, stuckMs } = feed.lag();
      result.observe(lag, Number(behind), attributes);
      result.observe(stalled, stuckMs > options.stallMs ? 1 : 0, attributes);
      result.observe(live, feed.liveCount, attributes);
    }
    try {
      const newest = await options.authority.head();
      for (const projection of options.projections()) {
        const attributes = { topic: projection.topic };
        result.observe(failed, projection.failed, attributes);
        if (projection.position !== undefined)
          result.observe(position, Number(newest - projection.position), attributes);
      }
      for (const row of await journalSizes(options.database)) {
        const attributes = { topic: row.topic };
        result.observe(head, Number(row.head), attributes);
        result.observe(floor, Number(row.floor), attributes);
        result.observe(rows, Number(row.head - row.floor), attributes);
        result.observe(age, row.age ?? 0, attributes);
        result.observe(bytes, Number(row.bytes));
      }
    } catch (error) {
      // Without the database, local values are still worth scraping; /readyz reports the outage.
      context.log.warn({ err: (error as Error).message }, "the metrics of the database could not be read");
    }
  }

  meter.addBatchObservableCallback(observe, all);
  return () => meter.removeBatchObservableCallback(observe, all);
}

interface JournalSize {
  readonly topic: string;
  readonly head: bigint;
  readonly floor: bigint;
  readonly age: number | null;
  readonly bytes: bigint;
}

/** Watermarks are dense, so the number of rows is a subtraction and not a scan. */
async function journalSizes(database: Database): Promise<JournalSize[]> {
  return database.query<JournalSize>({
    name: "sync_journal_sizes",
    text: `SELECT s.topic, s.next_watermark AS head, s.floor, pg_total_relation_size('runtime.sync_stream_events') AS bytes,
        (SELECT extract(epoch FROM now() - e.inserted_at)::float8 FROM runtime.sync_stream_events e
         WHERE e.topic = s.topic ORDER BY e.watermark LIMIT 1) AS age
      FROM runtime.sync_topic_sequences s`,
  });
}
