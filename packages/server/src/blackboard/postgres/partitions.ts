import type { Database } from "../../database/database.ts";

const DAY = 86_400_000;
const DAYS_AHEAD = 2;
const PURGE_AT_ONCE = 1_000;
/** Parents, and the column by which they are divided. */
const PARTITIONED = [
  ["board_artifacts", "id"],
  ["board_tasks", "task_id"],
] as const;

/** What a sweep did. */
export interface BoardSwept {
  readonly dropped: readonly string[];
  /** Artifacts and tasks whose ids say no time. */
  readonly others: number;
  readonly deadLetters: number;
}

const BEFORE = "to_timestamp($1::double precision / 1000)";
const OLD_LETTERS = {
  name: "board_purge_letters",
  text: `DELETE FROM runtime.board_dead_letters d USING (
      SELECT d.agent, d.id FROM runtime.board_dead_letters d
      WHERE d.failed_at < ${BEFORE} ORDER BY d.failed_at LIMIT $2
    ) old WHERE d.agent = old.agent AND d.id = old.id RETURNING 1`,
};
/** What is in no day, and not open. */
const OLD_OTHERS = [
  {
    name: "board_purge_artifacts",
    text: `DELETE FROM runtime.board_artifacts_other a USING (
        SELECT a.id, a.version FROM runtime.board_artifacts_other a
        WHERE a.stored_at < ${BEFORE} AND NOT EXISTS (SELECT FROM runtime.board_queue q WHERE q.artifact_id = a.id)
          AND NOT EXISTS (SELECT FROM runtime.board_unrouted u WHERE u.id = a.id)
          AND NOT EXISTS (SELECT FROM runtime.board_gathered_ids() AS g(id) WHERE g.id = a.id)
        ORDER BY a.stored_at LIMIT $2
      ) old WHERE a.id = old.id AND a.version = old.version RETURNING 1`,
  },
  {
    name: "board_purge_tasks",
    text: `DELETE FROM runtime.board_tasks_other t USING (
        SELECT t.task_id, t.agent, t.replay_id FROM runtime.board_tasks_other t
        WHERE t.stored_at < ${BEFORE} AND NOT EXISTS (SELECT FROM runtime.board_queue q WHERE q.task_id = t.task_id)
        ORDER BY t.stored_at LIMIT $2
      ) old WHERE t.task_id = old.task_id AND t.agent = old.agent AND t.replay_id = old.replay_id RETURNING 1`,
  },
];

const dateOf = (ms: number) => new Date(ms).toISOString().slice(0, 10);

/** What PostgreSQL says when a lock did not come in time. */
const LOCK_NOT_AVAILABLE = "55P03";

/**
 * Makes the partitions of today and of the next days. A table that is busy is left for the next time: what belongs into
 * a partition that is not there yet is kept in the default one.
 */
export async function makePartitions(database: Database, now: number): Promise<void> {
  for (let day = 0; day <= DAYS_AHEAD; day++)
    await database
      .query({
        name: "board_make_partitions",
        text: "SELECT runtime.board_make_partitions($1::date)",
        values: [dateOf(now + day * DAY)],
      })
      .catch((error: { code?: string }) => {
        if (error.code !== LOCK_NOT_AVAILABLE) throw error;
      });
}

/**
 * Drops what is older than the retention: whole days, unless a task is still open in them, what is in no day unless it
 * is open itself, and old dead letters.
 * Whoever publishes is not waited for: a day that is in use is dropped the next time.
 */
export async function sweepBoard(
  database: Database,
  now: number,
  { retentionMs, deadRetentionMs }: { readonly retentionMs: number; readonly deadRetentionMs: number },
): Promise<BoardSwept> {
  await makePartitions(database, now);
  const oldest = dateOf(now - retentionMs).replaceAll("-", "");
  const dropped: string[] = [];
  const days = await database.query<{ day: string }>({
    name: "board_old_days",
    text: `SELECT DISTINCT right(c.relname, 8) AS day FROM pg_inherits i
      JOIN pg_class c ON c.oid = i.inhrelid
      WHERE i.inhparent = ANY (ARRAY['runtime.board_artifacts'::regclass, 'runtime.board_tasks'::regclass])
        AND c.relname ~ '_[0-9]{8}$' AND right(c.relname, 8) < $1 ORDER BY 1`,
    values: [oldest],
  });
  for (const { day } of days) {
    if (await isOpen(database, day)) continue;
    await dropDay(database, day);
    dropped.push(day);
  }
  let others = 0;
  for (const statement of OLD_OTHERS)
    others += await purge(database, { ...statement, before: now - retentionMs });
  const deadLetters = await purge(database, { ...OLD_LETTERS, before: now - deadRetentionMs });
  return { dropped, others, deadLetters };
}

/** Whether a task of that day, or one that is about an artifact of that day, is not settled. */
async function isOpen(database: Database, day: string): Promise<boolean> {
  const [row] = await database.query<{ open: boolean }>({
    name: "board_day_open",
    text: `SELECT EXISTS (
        SELECT FROM runtime.board_queue q WHERE coalesce(q.artifact_id, q.task_id) >= runtime.board_low_id($1::date)
          AND coalesce(q.artifact_id, q.task_id) < runtime.board_low_id($1::date + 1)
      ) OR EXISTS (
        SELECT FROM runtime.board_unrouted u
        WHERE u.id >= runtime.board_low_id($1::date) AND u.id < runtime.board_low_id($1::date + 1)
      ) OR EXISTS (
        SELECT FROM runtime.board_gathered_ids() AS g(id)
        WHERE g.id >= runtime.board_low_id($1::date) AND g.id < runtime.board_low_id($1::date + 1)
      ) AS open`,
    values: [`${day.slice(0, 4)}-${day.slice(4, 6)}-${day.slice(6)}`],
  });
  return row!.open;
}

async function dropDay(database: Database, day: string): Promise<void> {
  await database.interactive(async (tx) => {
    await tx.query({ text: "SET LOCAL lock_timeout = '2s'" });
    for (const [parent] of PARTITIONED)
      await tx.query({ text: `DROP TABLE IF EXISTS runtime.${parent}_${day}` });
  });
}

async function purge(
  database: Database,
  { name, text, before }: { readonly name: string; readonly text: string; readonly before: number },
): Promise<number> {
  for (let gone = 0; ; ) {
    const rows = await database.query({ name, text, values: [before, PURGE_AT_ONCE] });
    gone += rows.length;
    if (rows.length < PURGE_AT_ONCE) return gone;
  }
}
