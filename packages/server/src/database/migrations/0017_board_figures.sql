-- What waits is counted up to a number, whatever there is; and what is paused keeps its order.

-- Without those that were replayed, which stay as long as the others.
CREATE INDEX board_dead_letters_open ON runtime.board_dead_letters (agent) WHERE replay_id IS NULL;

-- Open tasks and dead letters of agents, of each kind up to p_up_to. Those that run are the first that were due.
CREATE FUNCTION runtime.board_counts(p_agents text[], p_up_to bigint)
RETURNS TABLE (agent text, heads bigint, running bigint, behind bigint, arrived bigint, dead bigint)
-- Along the indexes, and so no further than the limit: a planner that expects few would collect all first, and sort them.
LANGUAGE sql STABLE SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off AS $$
  SELECT u.agent, h.heads, h.running, b.behind, r.arrived, d.dead
  FROM unnest(p_agents) AS u(agent)
  CROSS JOIN LATERAL (
    SELECT count(*) AS heads, count(*) FILTER (WHERE q.held_until > now()) AS running FROM (
      SELECT q.held_until FROM runtime.board_queue q
      WHERE q.agent = u.agent AND q.head ORDER BY q.due_at, q.seq LIMIT p_up_to
    ) q
  ) h
  CROSS JOIN LATERAL (
    SELECT count(*) AS behind FROM (
      SELECT FROM runtime.board_queue q WHERE q.agent = u.agent AND NOT q.head ORDER BY q.lane, q.seq LIMIT p_up_to
    ) q
  ) b
  CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.members), 0)::bigint AS arrived FROM (
      SELECT r.members FROM runtime.board_arrivals r WHERE r.agent = u.agent ORDER BY r.seq LIMIT p_up_to
    ) r
  ) r
  CROSS JOIN LATERAL (
    SELECT count(*) AS dead FROM (
      SELECT FROM runtime.board_dead_letters d WHERE d.agent = u.agent AND d.replay_id IS NULL LIMIT p_up_to
    ) d
  ) d
$$;

-- Makes tasks of batches, as before; what goes its own way because it is paused has the lane of its batch (p_s_lane), so that it is
-- put aside in the order in which it came. All lanes are taken in one go.
CREATE FUNCTION runtime.board_form(
  p_agent text, p_lane text[], p_key text[], p_task uuid[], p_correlation text[], p_created bigint, p_body text[],
  p_ids text[], p_versions text[],
  p_s_key text[], p_s_task uuid[], p_s_id uuid[], p_s_version int[], p_s_correlation text[], p_s_created bigint[],
  p_s_lane text[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  base bigint := nextval('runtime.board_seq');
  batches int := coalesce(cardinality(p_task), 0);
  singles int := coalesce(cardinality(p_s_task), 0);
  lanes text[];
BEGIN
  INSERT INTO runtime.board_tasks (task_id, agent, replay_id, correlation_id, body, artifact_ids, artifact_versions)
  SELECT t.task, p_agent, '', t.correlation, t.body, t.ids::uuid[], t.versions::int[]
  FROM unnest(p_task, p_correlation, p_body, p_ids, p_versions) AS t(task, correlation, body, ids, versions);
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
