-- Settles claims of p_holder: ended ones are deleted, retries wait, the next of each lane becomes ready, and outputs are put
-- on the board with their tasks. A claim that was lost changes nothing; where there are outputs it fails it all (KB001).
-- Answers a row for each lost claim, one for each agent of which a task became ready, and one that says if outputs were routed.
CREATE OR REPLACE FUNCTION runtime.board_settle(
  p_holder text, p_locks int[], p_ended json, p_retries json, p_artifacts json, p_tasks json, p_letters json
) RETURNS TABLE (lost bigint, promoted text, routed boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  given bigint[];
  settled bigint[];
  left_agents text[];
  left_lanes text[];
  left_seqs bigint[];
BEGIN
  PERFORM runtime.board_lock_lanes(p_locks);
  WITH s AS MATERIALIZED (
    SELECT s.* FROM json_to_recordset(p_ended) AS s(agent text COLLATE "C", lane text COLLATE "C", seq bigint, attempt int)
  ), gone AS (
    DELETE FROM runtime.board_tasks t USING s
    WHERE t.agent = s.agent AND t.lane = s.lane AND t.seq = s.seq AND t.claimed_by = p_holder AND t.attempt = s.attempt
    RETURNING t.agent, t.lane, t.seq
  )
  SELECT (SELECT array_agg(s.seq) FROM s), array_agg(g.seq), array_agg(g.agent), array_agg(g.lane)
  INTO given, settled, left_agents, left_lanes FROM gone g;
  left_seqs := settled;
  IF p_retries IS NOT NULL THEN
    WITH s AS MATERIALIZED (
      SELECT s.* FROM json_to_recordset(p_retries) AS s(
        agent text COLLATE "C", lane text COLLATE "C", seq bigint, attempt int, delay bigint, leaves boolean
      )
    ), kept AS (
      UPDATE runtime.board_tasks t SET claimed_by = NULL, held_until = NULL,
        due_at = clock_timestamp() + s.delay * interval '1 ms', lane = CASE WHEN s.leaves THEN '' ELSE t.lane END
      FROM s
      WHERE t.agent = s.agent AND t.lane = s.lane AND t.seq = s.seq AND t.claimed_by = p_holder AND t.attempt = s.attempt
      RETURNING s.agent, s.lane, s.seq, s.leaves
    )
    SELECT given || (SELECT array_agg(s.seq) FROM s), settled || array_agg(k.seq),
      left_seqs || array_agg(k.seq) FILTER (WHERE k.leaves), left_agents || array_agg(k.agent) FILTER (WHERE k.leaves),
      left_lanes || array_agg(k.lane) FILTER (WHERE k.leaves)
    INTO given, settled, left_seqs, left_agents, left_lanes FROM kept k;
  END IF;
  IF coalesce(cardinality(settled), 0) < cardinality(given) THEN
    IF p_artifacts IS NOT NULL THEN RAISE EXCEPTION 'a claim was lost' USING ERRCODE = 'KB001'; END IF;
    RETURN QUERY SELECT g.seq, NULL::text, NULL::boolean FROM unnest(given) AS g(seq)
      WHERE settled IS NULL OR g.seq <> ALL (settled);
  END IF;
  RETURN QUERY WITH next AS MATERIALIZED (
    SELECT b.* FROM unnest(left_agents, left_lanes, left_seqs) AS l(agent, lane, seq)
    -- Behind the one that left: what was deleted before it is not looked at again.
    CROSS JOIN LATERAL (
      SELECT b.agent, b.lane, b.seq FROM runtime.board_tasks b
      WHERE l.lane <> '' AND b.agent = l.agent COLLATE "C" AND b.lane = l.lane COLLATE "C" AND b.seq > l.seq
      ORDER BY b.seq LIMIT 1
    ) b
  ), came AS (
    -- It is due now and not when it was published: other keys that waited meanwhile come first.
    UPDATE runtime.board_tasks t SET ready = true, due_at = clock_timestamp()
    FROM next n WHERE t.agent = n.agent AND t.lane = n.lane AND t.seq = n.seq RETURNING t.agent
  )
  SELECT DISTINCT NULL::bigint, c.agent, NULL::boolean FROM came c;
  IF p_letters IS NOT NULL THEN PERFORM runtime.board_add_letters(p_letters, coalesce(settled, '{}')); END IF;
  IF p_artifacts IS NOT NULL THEN
    RETURN QUERY SELECT NULL::bigint, NULL::text, runtime.board_put('{}', p_artifacts, p_tasks, p_letters);
  END IF;
END $$;
