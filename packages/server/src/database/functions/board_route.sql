-- Routes artifacts that were left to the router, and takes them off its list. All their tasks have lanes.
CREATE FUNCTION runtime.board_route(
  p_seq bigint[], p_id uuid[], p_version int[], p_routes text[],
  p_t_at int[], p_t_artifact uuid[], p_t_version int[], p_t_correlation text[], p_t_agent text[], p_t_lane text[], p_t_key text[], p_t_task uuid[], p_t_created bigint[],
  p_a_id uuid[], p_a_agent text[], p_a_lane text[],
  p_d_agent text[], p_d_id uuid[], p_d_task uuid[], p_d_correlation text[], p_d_body text[]
) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  base bigint := nextval('runtime.board_seq');
BEGIN
  DELETE FROM runtime.board_unrouted u USING unnest(p_seq) AS s(seq) WHERE u.seq = s.seq;
  UPDATE runtime.board_artifacts a SET routes = string_to_array(u.routes, ',')
  FROM unnest(p_id, p_version, p_routes) AS u(id, version, routes) WHERE a.id = u.id AND a.version = u.version;
  INSERT INTO runtime.board_dead_letters (agent, id, task_id, correlation_id, body)
  SELECT d.agent, d.id, d.task, d.correlation, d.body
  FROM unnest(p_d_agent, p_d_id, p_d_task, p_d_correlation, p_d_body) AS d(agent, id, task, correlation, body)
  ON CONFLICT DO NOTHING;
  IF p_a_id IS NOT NULL THEN PERFORM runtime.board_adopt(p_a_id, p_a_agent, p_a_lane); END IF;
  PERFORM FROM runtime.board_line_up(
    ARRAY(SELECT base + t FROM unnest(p_t_at) AS t), p_t_agent, p_t_lane, p_t_key, coalesce(p_t_task, p_t_artifact), NULL,
    p_t_artifact, coalesce(p_t_version, array_fill(1, ARRAY[cardinality(p_t_at)])), p_t_correlation, p_t_created,
    NULL, NULL, 0);
END $$;
