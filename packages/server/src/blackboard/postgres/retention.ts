import type { Database } from "../../database/database.ts";

/** How long the board keeps what is finished. */
export interface Retention {
  /** Artifacts and enqueued tasks. */
  readonly retentionMs: number;
  readonly deadRetentionMs: number;
}

/** The numbers of rows a purge deleted. */
export interface Purged {
  readonly artifacts: number;
  readonly enqueued: number;
  readonly deadLetters: number;
}

const AT_ONCE = 1_000;
const BEFORE = "to_timestamp($1::double precision / 1000)";

/** Artifacts that no open task is about. */
const OLD_ARTIFACTS = `DELETE FROM runtime.board_artifacts a USING (
    SELECT a.org_id, a.id, a.version FROM runtime.board_artifacts a
    WHERE a.stored_at < ${BEFORE}
      AND NOT EXISTS (SELECT FROM runtime.board_tasks t WHERE t.org_id = a.org_id AND t.artifact_id = a.id)
    LIMIT $2
  ) old WHERE a.org_id = old.org_id AND a.id = old.id AND a.version = old.version RETURNING 1`;

const OLD_ENQUEUED = `DELETE FROM runtime.board_enqueued e USING (
    SELECT e.org_id, e.task_id, e.agent, e.replay_id FROM runtime.board_enqueued e
    WHERE e.stored_at < ${BEFORE} AND NOT EXISTS (
      SELECT FROM runtime.board_tasks t WHERE t.agent = e.agent AND t.org_id = e.org_id AND t.task_id = e.task_id
    )
    LIMIT $2
  ) old WHERE e.org_id = old.org_id AND e.task_id = old.task_id AND e.agent = old.agent AND e.replay_id = old.replay_id
  RETURNING 1`;

const OLD_LETTERS = `DELETE FROM runtime.board_dead_letters d USING (
    SELECT d.agent, d.org_id, d.id FROM runtime.board_dead_letters d
    WHERE d.failed_at < ${BEFORE} ORDER BY d.failed_at LIMIT $2
  ) old WHERE d.agent = old.agent AND d.org_id = old.org_id AND d.id = old.id RETURNING 1`;

/** Deletes what is older than the retention, some rows at a time, but nothing that an open task needs. */
export async function purge(
  database: Pick<Database, "query">,
  now: number,
  { retentionMs, deadRetentionMs }: Retention,
): Promise<Purged> {
  async function all(name: string, text: string, before: number): Promise<number> {
    for (let gone = 0; ; ) {
      const rows = await database.query({ name, text, values: [before, AT_ONCE] });
      gone += rows.length;
      if (rows.length < AT_ONCE) return gone;
    }
  }
  return {
    artifacts: await all("board_purge_artifacts", OLD_ARTIFACTS, now - retentionMs),
    enqueued: await all("board_purge_enqueued", OLD_ENQUEUED, now - retentionMs),
    deadLetters: await all("board_purge_letters", OLD_LETTERS, now - deadRetentionMs),
  };
}
