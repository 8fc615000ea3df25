-- Adds tasks; of p_tasks those whose n is in p_only, if that is given. The caller holds the locks of their lanes.
-- A task is ready if it has no lane, or is the first of it. The lane is looked up by row comparisons in the order of the
-- index, which only that index can answer: whatever the statistics say, it is one probe for each task. Equality would let
-- the planner choose another index, and without the upper bound the probe would walk on over deleted tasks of other lanes.
CREATE OR REPLACE FUNCTION runtime.board_add_tasks(p_base bigint, p_tasks json, p_only int[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  INSERT INTO runtime.board_tasks (seq, agent, lane, org_id, ready, due_at, task_id, key, artifact_id, artifact_version,
    created_at, body)
  SELECT p_base + t.n, t.agent, t.lane, t.org,
    t.lane = '' OR (t.place = 1 AND o.seq IS NULL), clock_timestamp(), t.id, t.key,
    t.artifact, t.version, t.created, t.body
  FROM (
    SELECT t.*, row_number() OVER (PARTITION BY t.agent, t.org, t.lane ORDER BY t.n) AS place
    FROM json_to_recordset(p_tasks) AS t(
      n int, agent text COLLATE "C", org text COLLATE "C", lane text COLLATE "C", id uuid, key text, artifact uuid,
      version int, created bigint, body text
    ) WHERE p_only IS NULL OR t.n = ANY (p_only)
  ) t
  LEFT JOIN LATERAL (
    SELECT o.seq FROM runtime.board_tasks o
    WHERE t.lane <> '' AND (o.agent, o.org_id, o.lane, o.seq) > (t.agent, t.org, t.lane, 0)
      AND (o.agent, o.org_id, o.lane, o.seq) < (t.agent, t.org, t.lane, 9223372036854775807)
    ORDER BY o.agent, o.org_id, o.lane, o.seq LIMIT 1
  ) o ON true;
END $$;
