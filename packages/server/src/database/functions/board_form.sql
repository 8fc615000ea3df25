-- Makes tasks of batches, as before: p_ids and p_versions are those of all of them, one after the other, p_count how many
-- each has. Null for the versions is 1.
CREATE FUNCTION runtime.board_form(
  p_agent text, p_lane text[], p_key text[], p_task uuid[], p_correlation text[], p_created bigint, p_body text[],
  p_count int[], p_ids uuid[], p_versions int[],
  p_s_key text[], p_s_task uuid[], p_s_id uuid[], p_s_version int[], p_s_correlation text[], p_s_created bigint[],
  p_s_lane text[]
) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  base bigint := nextval('runtime.board_seq');
  batches int := coalesce(cardinality(p_task), 0);
  singles int := coalesce(cardinality(p_s_task), 0);
  lanes text[];
BEGIN
  INSERT INTO runtime.board_tasks (task_id, agent, replay_id, correlation_id, body, artifact_ids, artifact_versions)
  SELECT t.task, p_agent, '', t.correlation, t.body, p_ids[t.until - t.count + 1:t.until],
    p_versions[t.until - t.count + 1:t.until]
  FROM (
    SELECT t.*, sum(t.count) OVER (ORDER BY t.n)::int AS until
    FROM unnest(p_task, p_correlation, p_body, p_count) WITH ORDINALITY AS t(task, correlation, body, count, n)
  ) t;
  IF p_lane IS NOT NULL OR p_s_lane IS NOT NULL THEN
    lanes := coalesce(p_lane, array_fill(NULL::text, ARRAY[batches]))
      || coalesce(p_s_lane, array_fill(NULL::text, ARRAY[singles]));
  END IF;
  PERFORM FROM runtime.board_line_up(
    ARRAY(SELECT base + i FROM generate_series(1, batches + singles) AS i), array_fill(p_agent, ARRAY[batches + singles]),
    lanes, p_key || p_s_key, p_task || p_s_task, NULL, array_fill(NULL::uuid, ARRAY[batches]) || p_s_id,
    array_fill(NULL::int, ARRAY[batches]) || p_s_version, p_correlation || p_s_correlation,
    array_fill(p_created, ARRAY[batches]) || p_s_created, NULL, NULL, 0);
END $$;
