import type { Database } from "../../../database/database.ts";

const PURGE_BATCH = 1_000;

/** The result of a sweep, and whether there is more to do. */
export interface Swept {
  readonly streams: number;
  readonly entries: number;
  readonly more: boolean;
}

/**
 * Removes up to `limit` expired streams, and about as many entries of removed ones. Unlike a delete by name, it never
 * removes a stream that was created again in the meantime.
 */
export async function sweepLog(database: Database, limit: number): Promise<Swept> {
  const streams = await database.query({
    name: "log_sweep",
    text: `WITH expired AS MATERIALIZED (
        SELECT stream FROM runtime.log_streams WHERE sweep_at <= now() AND expires_at <= now()
        ORDER BY sweep_at LIMIT $1 FOR UPDATE SKIP LOCKED
      ), gone AS (
        DELETE FROM runtime.log_streams WHERE stream = ANY (ARRAY(SELECT stream FROM expired)) RETURNING log_id
      )
      INSERT INTO runtime.log_leftovers (log_id) SELECT log_id FROM gone RETURNING log_id`,
    values: [limit],
  });
  const leftovers = await database.query<{ log_id: bigint }>({
    name: "log_leftovers",
    text: "SELECT log_id FROM runtime.log_leftovers ORDER BY log_id LIMIT $1",
    values: [limit],
  });
  let entries = 0;
  let done = 0;
  for (const { log_id } of leftovers) {
    if (entries >= limit) break;
    const { removed, finished } = await purge(database, log_id, limit - entries);
    entries += removed;
    if (finished) done++;
  }
  return {
    streams: streams.length,
    entries,
    more: streams.length === limit || leftovers.length === limit || done < leftovers.length,
  };
}

/** Removes the entries of a deleted stream, in batches. */
export async function purgeLeftover(database: Database, logId: bigint): Promise<void> {
  while (!(await purge(database, logId, PURGE_BATCH)).finished);
}

async function purge(database: Database, logId: bigint, limit: number) {
  const [row] = await database.query<{ removed: number }>({
    name: "log_purge",
    // Locks in their order first: two purges of a stream could otherwise wait for each other.
    text: `WITH oldest AS MATERIALIZED (
        SELECT seq FROM runtime.log_entries WHERE log_id = $1 ORDER BY seq LIMIT $2 FOR UPDATE
      ), gone AS (
        DELETE FROM runtime.log_entries WHERE log_id = $1 AND seq <= (SELECT max(seq) FROM oldest) RETURNING 1
      ) SELECT count(*)::int AS removed FROM gone`,
    values: [logId, Math.min(limit, PURGE_BATCH)],
  });
  // A concurrent purge may have removed some of them, so the count does not show whether entries are left.
  const [rest] = await database.query<{ more: boolean }>({
    name: "log_purge_rest",
    text: "SELECT EXISTS (SELECT FROM runtime.log_entries WHERE log_id = $1) AS more",
    values: [logId],
  });
  if (!rest!.more)
    await database.query({
      name: "log_purged",
      text: "DELETE FROM runtime.log_leftovers WHERE log_id = $1",
      values: [logId],
    });
  return { removed: row!.removed, finished: !rest!.more };
}
