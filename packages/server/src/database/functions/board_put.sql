-- Puts artifacts on the board with the tasks that they lead to, and the dead letters; an id and version that is there
-- fails it all. They are left to the router while others wait for it: else they would pass earlier ones of their key.
-- p_at and p_t_at count on from the number that is taken: the tasks of an artifact follow it. The caller sorts artifacts
-- by id and version: no deadlock. Null for the versions is 1, for tasks' ids those of their artifacts, and for those:
-- each artifact has one task. One org, type or routes alone are those of all.
-- Of each bundle: its agent, the number of its first task, which of p_b_at and p_b_id are its own, its own keys as
-- hexadecimal digits or others as the text of an array, and whether it is claimed. Null for p_b_id are the artifacts' ids.
-- Of each run: the number of its last artifact, and its ids as the text of an array. Null: each artifact is listed alone.
-- Answers one row with n = 0 and the number that was taken if they were routed, and one for each task that was claimed.
CREATE FUNCTION runtime.board_put(
  p_route boolean, p_at int[], p_id uuid[], p_version int[], p_org text[], p_type text[], p_correlation text[], p_routes text[], p_body text[],
  p_t_at int[], p_t_artifact uuid[], p_t_version int[], p_t_correlation text[], p_t_agent text[], p_t_lane text[], p_t_key text[], p_t_task uuid[], p_t_created bigint[], p_t_want boolean[],
  p_a_id uuid[], p_a_agent text[], p_a_lane text[],
  p_d_agent text[], p_d_id uuid[], p_d_task uuid[], p_d_correlation text[], p_d_body text[],
  p_b_agent text[], p_b_first int[], p_b_from int[], p_b_until int[], p_b_own_keys text[], p_b_keys text[], p_b_want boolean[],
  p_b_at int[], p_b_id uuid[], p_b_created bigint,
  p_holder text, p_lease_ms bigint, p_r_at int[], p_r_ids text[]
) RETURNS TABLE (n int, seq bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  routed boolean := p_route AND NOT EXISTS (SELECT FROM runtime.board_unrouted);
  base bigint;
  same_routes text[] := string_to_array(p_routes[1], ',');
BEGIN
  IF cardinality(p_id) = 0 THEN RETURN; END IF;
  IF cardinality(p_id) + coalesce(cardinality(p_t_at), 0) >= 1048576 THEN
    RAISE EXCEPTION 'too many artifacts and tasks at a time';
  END IF;
  base := nextval('runtime.board_seq');
  INSERT INTO runtime.board_artifacts (id, version, seq, org_id, type, correlation_id, routes, run, body)
  SELECT u.id, coalesce(u.version, 1), base + u.at, coalesce(u.org, p_org[1]), coalesce(u.type, p_type[1]), u.correlation,
    CASE WHEN NOT routed THEN NULL WHEN u.routes IS NULL THEN same_routes ELSE string_to_array(u.routes, ',') END,
    CASE WHEN p_r_at IS NULL THEN '{}' ELSE p_r_ids[array_position(p_r_at, u.at)]::uuid[] END, u.body
  -- Side by side, and kept nowhere in between.
  FROM (
    SELECT unnest(p_at) AS at, unnest(p_id) AS id, unnest(p_version) AS version, unnest(p_org) AS org,
      unnest(p_type) AS type, unnest(p_correlation) AS correlation, unnest(p_routes) AS routes, unnest(p_body) AS body
  ) u;
  IF NOT routed THEN
    INSERT INTO runtime.board_unrouted (seq, id, version)
    SELECT base + u.at, u.id, coalesce(u.version, 1) FROM unnest(p_at, p_id, p_version) AS u(at, id, version);
    RETURN;
  END IF;
  IF p_d_id IS NOT NULL THEN
    INSERT INTO runtime.board_dead_letters (agent, id, task_id, correlation_id, body)
    SELECT d.agent, d.id, d.task, d.correlation, d.body
    FROM unnest(p_d_agent, p_d_id, p_d_task, p_d_correlation, p_d_body) AS d(agent, id, task, correlation, body)
    ON CONFLICT DO NOTHING;
  END IF;
  n := 0;
  seq := base;
  RETURN NEXT;
  IF p_a_id IS NOT NULL THEN PERFORM runtime.board_adopt(p_a_id, p_a_agent, p_a_lane); END IF;
  IF p_b_agent IS NOT NULL THEN
    p_b_id := coalesce(p_b_id, p_id);
    INSERT INTO runtime.board_bundles (agent, seq, ats, ids, own_keys, keys, created_at, due_at, claimed_by, held_until)
    SELECT u.agent, base + u.first, p_b_at[u.from:u.until], p_b_id[u.from:u.until], decode(u.own_keys, 'hex'), u.keys::text[],
      p_b_created, now(), CASE WHEN u.want THEN p_holder END, CASE WHEN u.want THEN now() + p_lease_ms * interval '1 ms' END
    FROM unnest(p_b_agent, p_b_first, p_b_from, p_b_until, p_b_own_keys, p_b_keys, p_b_want)
      AS u(agent, first, "from", until, own_keys, keys, want);
  END IF;
  IF cardinality(p_t_at) = 0 THEN RETURN; END IF;
  RETURN QUERY SELECT l.n, l.seq FROM runtime.board_line_up(
    ARRAY(SELECT base + t FROM unnest(p_t_at) AS t), p_t_agent, p_t_lane, p_t_key, coalesce(p_t_task, p_t_artifact, p_id), NULL,
    coalesce(p_t_artifact, p_id), coalesce(p_t_version, array_fill(1, ARRAY[cardinality(p_t_at)])), p_t_correlation, p_t_created,
    p_t_want, p_holder, p_lease_ms) l;
END $$;
