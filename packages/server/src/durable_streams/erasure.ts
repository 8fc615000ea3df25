import type { Database } from "../database/database.ts";

const STREAMS = 100;

/** Deletes a batch of the durable streams of a subject, or counts them. */
export async function eraseStreams(
  database: Pick<Database, "query">,
  { org, subject, dryRun }: { readonly org: string; readonly subject: string; readonly dryRun: boolean },
): Promise<{ readonly count: number; readonly more: boolean }> {
  if (dryRun) {
    const [row] = await database.query<{ n: number }>({
      name: "erase_count_streams",
      text: "SELECT count(*)::int AS n FROM runtime.durable_streams WHERE org_id = $1 AND owner = $2",
      values: [org, subject],
    });
    return { count: row!.n, more: false };
  }
  const rows = await database.query({
    name: "erase_durable_streams",
    text: `DELETE FROM runtime.durable_streams WHERE id IN (
        SELECT id FROM runtime.durable_streams WHERE org_id = $1 AND owner = $2 LIMIT $3) RETURNING 1`,
    values: [org, subject, STREAMS],
  });
  return { count: rows.length, more: rows.length === STREAMS };
}
