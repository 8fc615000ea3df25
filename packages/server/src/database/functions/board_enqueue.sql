-- Puts tasks before their agents without routing. Those that were there before, by org, id, agent and replay, are passed over,
-- open or settled; `mark` is how an artifact's row says that routing made the same task. Answers the n of each that is new.
CREATE OR REPLACE FUNCTION runtime.board_enqueue(p_locks int[], p_tasks json) RETURNS SETOF int
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  fresh int[];
  replayed record;
BEGIN
  PERFORM runtime.board_lock_lanes(p_locks);
  WITH given AS MATERIALIZED (
    SELECT DISTINCT ON (u.id, u.org, u.agent, u.replay) u.*
    FROM json_to_recordset(p_tasks) AS u(
      n int, id uuid, org text COLLATE "C", agent text COLLATE "C", replay text COLLATE "C", correlation text, artifact uuid,
      version int, mark text COLLATE "C"
    ) ORDER BY u.id, u.org, u.agent, u.replay, u.n
  ), made AS (
    INSERT INTO runtime.board_enqueued AS e (task_id, agent, replay_id, org_id, correlation_id)
    SELECT g.id, g.agent, g.replay, g.org, g.correlation FROM given g
    LEFT JOIN LATERAL (
      SELECT true AS routed FROM runtime.board_artifacts a
      WHERE g.mark IS NOT NULL AND a.org_id = g.org AND a.id = g.artifact AND a.version = g.version
        AND g.mark = ANY (a.routes) LIMIT 1
    ) a ON true
    WHERE a.routed IS NULL
    ORDER BY g.id, g.org, g.agent, g.replay
    ON CONFLICT DO NOTHING RETURNING e.task_id, e.org_id, e.agent, e.replay_id
  )
  SELECT array_agg(g.n) INTO fresh FROM made m
  JOIN given g ON g.id = m.task_id AND g.org = m.org_id AND g.agent = m.agent AND g.replay = m.replay_id;
  IF fresh IS NULL THEN RETURN; END IF;
  FOR replayed IN SELECT u.* FROM json_to_recordset(p_tasks) AS u(n int, id uuid, org text, agent text, replay text)
    WHERE u.replay <> '' AND u.n = ANY (fresh) ORDER BY u.id
  LOOP
    UPDATE runtime.board_dead_letters d SET replay_id = replayed.replay
    WHERE d.task_id = replayed.id AND d.org_id = replayed.org AND d.agent = replayed.agent;
  END LOOP;
  PERFORM runtime.board_add_tasks(nextval('runtime.board_seq'), p_tasks, fresh);
  RETURN QUERY SELECT unnest(fresh);
END $$;
