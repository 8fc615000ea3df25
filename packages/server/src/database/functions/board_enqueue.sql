-- Puts tasks before their agents. Those that were there before, by id, agent and replay, are passed over, settled or not;
-- p_mark is how the artifact's row would say that routing made the same task. Answers a row for each that is new.
CREATE FUNCTION runtime.board_enqueue(
  p_agent text[], p_lane text[], p_key text[], p_task uuid[], p_replay text[], p_correlation text[], p_created bigint[],
  p_body text[], p_artifact uuid[], p_version int[], p_mark text[]
) RETURNS TABLE (n int)
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  fresh int[];
  base bigint;
BEGIN
  WITH made AS (
    INSERT INTO runtime.board_tasks AS t (task_id, agent, replay_id, correlation_id, body)
    SELECT u.task, u.agent, u.replay, u.correlation, u.body
    FROM unnest(p_task, p_agent, p_replay, p_correlation, p_body, p_artifact, p_version, p_mark)
      AS u(task, agent, replay, correlation, body, artifact, version, mark)
    WHERE u.replay <> '' OR NOT EXISTS (
      SELECT FROM runtime.board_artifacts a WHERE a.id = u.artifact AND a.version = u.version AND u.mark = ANY (a.routes))
    ORDER BY u.task, u.agent COLLATE "C", u.replay COLLATE "C"
    ON CONFLICT DO NOTHING RETURNING t.task_id, t.agent, t.replay_id
  )
  SELECT array_agg(u.n ORDER BY u.n) INTO fresh FROM (
    SELECT min(u.n) AS n FROM made m
    JOIN unnest(p_task, p_agent, p_replay) WITH ORDINALITY AS u(task, agent, replay, n)
      ON u.task = m.task_id AND u.agent = m.agent AND u.replay = m.replay_id
    GROUP BY u.task, u.agent, u.replay
  ) u;
  IF fresh IS NULL THEN RETURN; END IF;
  UPDATE runtime.board_dead_letters d SET replay_id = u.replay
  FROM unnest(p_task, p_agent, p_replay) WITH ORDINALITY AS u(task, agent, replay, n)
  WHERE d.task_id = u.task AND d.agent = u.agent AND u.replay <> '' AND u.n = ANY (fresh);
  base := nextval('runtime.board_seq');
  PERFORM FROM runtime.board_line_up(
    ARRAY(SELECT base + i FROM unnest(fresh) AS i), ARRAY(SELECT p_agent[i] FROM unnest(fresh) AS i), ARRAY(SELECT p_lane[i] FROM unnest(fresh) AS i),
    ARRAY(SELECT p_key[i] FROM unnest(fresh) AS i), ARRAY(SELECT p_task[i] FROM unnest(fresh) AS i),
    ARRAY(SELECT p_replay[i] FROM unnest(fresh) AS i), array_fill(NULL::uuid, ARRAY[cardinality(fresh)]),
    array_fill(NULL::int, ARRAY[cardinality(fresh)]), ARRAY(SELECT p_correlation[i] FROM unnest(fresh) AS i),
    ARRAY(SELECT p_created[i] FROM unnest(fresh) AS i), array_fill(false, ARRAY[cardinality(fresh)]), NULL, 0);
  RETURN QUERY SELECT unnest(fresh);
END $$;
