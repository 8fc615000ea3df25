import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { deleteExpired, EXPIRED_BATCH } from "../expiry.ts";
import type { SyncMetrics } from "../metrics.ts";
import type { Model, Models } from "../model.ts";

export interface RetentionOptions {
  readonly models: Models;
  readonly keepMs: number;
  readonly everyMs: number;
  readonly metrics: SyncMetrics;
  /** Whether the journal has payloads. */
  readonly inline: boolean;
  /** Called with the number of documents of a topic that have expired. */
  readonly onExpired: (topic: string, documents: number) => void;
  /** Whether this process holds the lease. */
  readonly active: () => boolean;
}

/** Rows per DELETE: few enough not to block others. */
const BATCH = 5_000;

/** Deletes expired documents and trims the journals, in the background. */
export function startRetention(database: Database, context: Context, options: RetentionOptions): Service {
  return runLoop(context, "retention", {
    wake: new Wake(),
    idleMs: options.everyMs,
    async step(signal) {
      if (!options.active()) return false;
      try {
        for (const model of options.models.all) {
          for (let expired = EXPIRED_BATCH; !signal.aborted && expired === EXPIRED_BATCH; ) {
            expired = await deleteExpired(database, model, options.inline);
            if (expired > 0) options.onExpired(model.topic, expired);
          }
          while (!signal.aborted && (await trimTopic(database, model, options.keepMs)) === BATCH);
        }
        options.metrics.retention.add(1, { outcome: "ok" });
      } catch (error) {
        options.metrics.retention.add(1, { outcome: "failed" });
        throw error;
      }
      return false;
    },
  });
}

/**
 * Removes up to a batch of journal rows that are older than `keepMs`, and the tombstones that only they announced.
 * The floor moves in the same transaction: no reader sees the gap without seeing the floor.
 */
export async function trimTopic(database: Database, model: Model, keepMs: number): Promise<number> {
  return database.interactive(async (tx) => {
    // The newest row of the batch that is old enough. Watermarks and times rise together, so it bounds the rest.
    const [found] = await tx.query<{ upTo: bigint | null }>({
      name: "sync_retention_bound",
      text: `SELECT max(watermark) AS "upTo" FROM (
          SELECT watermark, inserted_at FROM runtime.sync_stream_events WHERE topic = $1 ORDER BY watermark LIMIT $2
        ) oldest WHERE inserted_at < now() - $3 * interval '1 ms'`,
      values: [model.topic, BATCH, keepMs],
    });
    if (found?.upTo == null) return 0;
    const values = [model.topic, found.upTo];
    // Nobody else writes these rows; the row that writers lock is touched after them, for the shortest time.
    const deleted = await tx.query<{ org: string; tombstone: string | null }>({
      name: "sync_retention_delete",
      text: `DELETE FROM runtime.sync_stream_events WHERE topic = $1 AND watermark <= $2
        RETURNING org_id AS org, CASE op WHEN 'delete' THEN doc_key END AS tombstone`,
      values,
    });
    await tx.query({
      name: "sync_retention_viewers",
      text: "DELETE FROM runtime.sync_stream_viewers WHERE topic = $1 AND watermark <= $2",
      values,
    });
    await tx.query({
      name: "sync_retention_parts",
      text: "DELETE FROM runtime.sync_stream_parts WHERE topic = $1 AND watermark <= $2",
      values,
    });
    await tx.query({
      name: "sync_retention_floor",
      text: "UPDATE runtime.sync_topic_sequences SET floor = greatest(floor, $2) WHERE topic = $1",
      values,
    });
    // A writer that brings a document back holds that row already: taken in any other order, the two could block each other.
    const tombstones = deleted.filter(({ tombstone }) => tombstone !== null);
    if (tombstones.length > 0) {
      await tx.query({
        name: `sync_buried_${model.table}`,
        text: `WITH buried AS (
            DELETE FROM runtime.${model.table} d USING unnest($3::text[], $4::text[]) AS i(org_id, doc_key)
            WHERE d.org_id = i.org_id AND d.doc_key = i.doc_key AND d.deleted AND d.watermark <= $2
            RETURNING d.doc_version
          )
          UPDATE runtime.sync_topic_sequences SET purged_version = greatest(purged_version, newest)
          FROM (SELECT max(doc_version) AS newest FROM buried) b WHERE topic = $1 AND newest IS NOT NULL`,
        values: [...values, tombstones.map(({ org }) => org), tombstones.map(({ tombstone }) => tombstone)],
      });
    }
    return deleted.length;
  });
}
