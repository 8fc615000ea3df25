-- Adds tasks; of p_tasks those whose n is in p_only, if that is given. The caller holds the locks of their lanes.
-- Planner settings: a table without statistics, or with old ones, must not turn lookups by key into scans.
CREATE OR REPLACE FUNCTION runtime.board_add_tasks(p_base bigint, p_tasks json, p_only int[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  INSERT INTO runtime.board_tasks (agent, lane, seq, org_id, ready, due_at, task_id, key, artifact_id, artifact_version,
    created_at, body)
  SELECT t.agent, t.lane, p_base + t.n, t.org, t.lane = '' OR (t.place = 1 AND o.busy IS NULL), clock_timestamp(), t.id, t.key,
    t.artifact, t.version, t.created, t.body
  FROM (
    SELECT t.*, row_number() OVER (PARTITION BY t.agent, t.lane ORDER BY t.n) AS place
    FROM json_to_recordset(p_tasks) AS t(
      n int, agent text COLLATE "C", lane text COLLATE "C", org text, id uuid, key text, artifact uuid, version int,
      created bigint, body text
    ) WHERE p_only IS NULL OR t.n = ANY (p_only)
  ) t
  -- With a limit it is looked up row by row.
  LEFT JOIN LATERAL (
    SELECT true AS busy FROM runtime.board_tasks o WHERE t.lane <> '' AND o.agent = t.agent AND o.lane = t.lane LIMIT 1
  ) o ON true
  ORDER BY t.n;
END $$;
