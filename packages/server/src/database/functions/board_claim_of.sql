-- Claims up to p_most tasks of an agent and org that became due from p_from on (milliseconds), the longest due first. A task
-- whose artifact is gone comes without a body.
-- Planner settings: whatever the statistics say, the tasks are read in the order of the index, and no further than needed.
CREATE OR REPLACE FUNCTION runtime.board_claim_of(
  p_agent text, p_org text, p_most int, p_holder text, p_lease_ms bigint, p_from float8
) RETURNS TABLE (
  seq bigint, lane text, org_id text, attempt int, due float8, task_id uuid, key text, created_at bigint, artifact text, task text
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY WITH free AS MATERIALIZED (
    SELECT t.seq FROM runtime.board_tasks t
    WHERE t.agent = p_agent AND t.org_id = p_org AND t.ready AND t.due_at <= now()
      AND t.due_at >= to_timestamp(p_from / 1000) AND (t.held_until IS NULL OR t.held_until <= now())
    ORDER BY t.due_at, t.seq LIMIT p_most FOR NO KEY UPDATE SKIP LOCKED
  ), mine AS (
    UPDATE runtime.board_tasks t
    SET claimed_by = p_holder, held_until = now() + p_lease_ms * interval '1 ms', attempt = t.attempt + 1
    WHERE t.seq = ANY (ARRAY(SELECT f.seq FROM free f)) RETURNING t.*
  )
  SELECT m.seq, m.lane, m.org_id, m.attempt, extract(epoch FROM m.due_at)::float8 * 1000, m.task_id, m.key, m.created_at,
    a.body, m.body
  FROM mine m
  LEFT JOIN LATERAL (
    SELECT a.body FROM runtime.board_artifacts a
    WHERE m.body IS NULL AND a.org_id = m.org_id AND a.id = m.artifact_id AND a.version = m.artifact_version OFFSET 0
  ) a ON true;
END $$;
