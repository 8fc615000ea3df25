import type { Database, Row } from "../database/database.ts";
import type { Artifact } from "./artifact.ts";
import type { Claimed } from "./postgres_statements.ts";
import type { Task } from "./task.ts";

/** A task that was claimed, with the artifact that it is about, or as it was enqueued. */
export interface ClaimRow extends Row {
  readonly seq: bigint;
  readonly lane: string | null;
  readonly attempt: number;
  readonly task_id: string;
  readonly key: string;
  readonly created_at: bigint;
  /** The artifact, or the whole task where that was enqueued. */
  readonly artifact: string | null;
  readonly task: string | null;
}

/** Tasks that were claimed, and when to look again if there are no others: milliseconds until the next is due. */
export interface Claims {
  readonly claims: readonly Claimed[];
  readonly nextDueMs: number | undefined;
}

// Subqueries with OFFSET 0 are looked up one by one through an index, whatever the planner knows of the tables.

/** Agent, how many, holder, lease in milliseconds. Only heads of lanes are in the index: no row is looked at in vain. */
const CLAIM = `
WITH due AS MATERIALIZED (
  SELECT q.seq, q.due_at FROM runtime.board_queue q
  WHERE q.agent = $1 AND q.head AND q.due_at <= now()
  ORDER BY q.due_at, q.seq LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
  UPDATE runtime.board_queue q
  SET claimed_by = $3, attempt = q.attempt + 1, due_at = now() + $4 * interval '1 ms'
  FROM (SELECT d.seq FROM due d OFFSET 0) d WHERE q.seq = d.seq
  RETURNING q.seq, q.lane, q.attempt, q.agent, q.task_id, q.replay_id, q.artifact_id, q.artifact_version, q.key, q.created_at
)
SELECT t.seq, t.lane, t.attempt, t.task_id, t.key, t.created_at, a.body AS artifact, k.body AS task
FROM taken t
LEFT JOIN LATERAL (
  SELECT a.body FROM runtime.board_artifacts a WHERE a.id = t.artifact_id AND a.version = t.artifact_version OFFSET 0
) a ON true
LEFT JOIN LATERAL (
  SELECT k.body FROM runtime.board_tasks k
  WHERE t.artifact_id IS NULL AND k.task_id = t.task_id AND k.agent = t.agent AND k.replay_id = t.replay_id OFFSET 0
) k ON true
ORDER BY t.seq`;

/** When the next task of an agent is due that is not yet. */
const NEXT_DUE = `
SELECT ceil(extract(epoch FROM q.due_at - clock_timestamp()) * 1000)::int AS ms FROM runtime.board_queue q
WHERE q.agent = $1 AND q.head AND q.due_at > now() ORDER BY q.due_at LIMIT 1`;

/** Which of these agents have a task that may be claimed now. */
export const READY = `
SELECT u.agent FROM unnest($1::text[]) AS u(agent)
WHERE EXISTS (SELECT FROM runtime.board_queue q WHERE q.agent = u.agent AND q.head AND q.due_at <= now())`;

/**
 * Renews leases: holder, sequences, attempts, lease. Answers those that are still the holder's. A row that is locked is
 * being settled, or will be renewed the next time.
 */
export const RENEW = `
WITH mine AS MATERIALIZED (
  SELECT q.seq FROM unnest($2::bigint[], $3::int[]) AS u(seq, attempt)
  CROSS JOIN LATERAL (
    SELECT q.seq FROM runtime.board_queue q
    WHERE q.seq = u.seq AND q.claimed_by = $1 AND q.attempt = u.attempt OFFSET 0
  ) q
), free AS MATERIALIZED (
  SELECT f.seq FROM mine m
  CROSS JOIN LATERAL (
    SELECT q.seq FROM runtime.board_queue q WHERE q.seq = m.seq AND q.claimed_by = $1
    OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED
  ) f
), renewed AS (
  UPDATE runtime.board_queue q SET due_at = now() + $4 * interval '1 ms'
  FROM (SELECT f.seq FROM free f OFFSET 0) f WHERE q.seq = f.seq AND q.claimed_by = $1
)
SELECT m.seq FROM mine m`;

/** Gives claims back: holder, sequences, attempts, and how many attempts each takes back: 1 if it was not begun. */
export const RELEASE = `
UPDATE runtime.board_queue q SET claimed_by = NULL, due_at = now(), attempt = q.attempt - u.back
FROM unnest($2::bigint[], $3::int[], $4::int[]) AS u(seq, attempt, back)
WHERE q.seq = u.seq AND q.claimed_by = $1 AND q.attempt = u.attempt RETURNING q.agent`;

/** Claims up to `most` tasks of an agent. */
export async function claim(
  database: Database,
  agent: string,
  most: number,
  holder: string,
  leaseMs: number,
): Promise<Claims> {
  const [rows, next] = await database.transaction([
    { name: "board_claim", text: CLAIM, values: [agent, most, holder, leaseMs] },
    { name: "board_next_due", text: NEXT_DUE, values: [agent] },
  ]);
  const claims = rows!.map((row) => claimedOf(agent, row as ClaimRow));
  return { claims, nextDueMs: next![0]?.ms as number | undefined };
}

/** What a row says. */
export function claimedOf(agent: string, row: ClaimRow): Claimed {
  const { seq, lane, attempt } = row;
  if (row.task !== null) return { seq, lane, task: { ...(JSON.parse(row.task) as Task), attempt } };
  if (row.artifact === null)
    throw new Error(`The artifact of task ${row.task_id} of "${agent}" is not there.`);
  const artifacts: Task["artifacts"] = [JSON.parse(row.artifact) as Artifact];
  const created_at = new Date(Number(row.created_at)).toISOString();
  return { seq, lane, task: { id: row.task_id, agent, artifacts, key: row.key, attempt, created_at } };
}
