-- Claims due tasks of an agent: up to p_share of each org, p_most in all, the orgs in the order given. Of an org those that
-- became due from p_froms on (milliseconds), the longest due first. A task whose artifact is gone comes without a body.
-- Planner settings: whatever the statistics say, the tasks are read in the order of the index, and no further than needed.
CREATE OR REPLACE FUNCTION runtime.board_claim_of(
  p_agent text, p_orgs text[], p_froms float8[], p_share int, p_most int, p_holder text, p_lease_ms bigint
) RETURNS TABLE (
  seq bigint, lane text, org_id text, attempt int, due float8, task_id uuid, key text, created_at bigint, artifact text, task text
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY WITH free AS MATERIALIZED (
    SELECT t.seq FROM unnest(p_orgs, p_froms) AS u(org, from_ms) CROSS JOIN LATERAL (
      SELECT t.seq FROM runtime.board_tasks t
      WHERE t.agent = p_agent AND t.org_id = u.org AND t.ready AND t.due_at <= now()
        AND t.due_at >= to_timestamp(u.from_ms / 1000) AND (t.held_until IS NULL OR t.held_until <= now())
      ORDER BY t.due_at, t.seq LIMIT p_share FOR NO KEY UPDATE SKIP LOCKED
    ) t LIMIT p_most
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
