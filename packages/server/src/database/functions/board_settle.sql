-- Settles claims of p_holder: ended ones are deleted, retries wait, the next of each lane becomes ready, and outputs are put
-- on the board with their tasks. A claim that was lost changes nothing; where there are outputs it fails it all (KB001).
-- Answers a row for each lost claim, and one for each agent of which a task became ready.
-- Rows are found by lists of numbers and by row comparisons, never by joins: their plans do not depend on statistics.
CREATE OR REPLACE FUNCTION runtime.board_settle(
  p_holder text, p_locks int[], p_ended bigint[], p_retries json, p_artifacts json, p_tasks json, p_letters json
) RETURNS TABLE (lost bigint, promoted text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  given bigint[] := p_ended;
  settled bigint[];
  left_agents text[] COLLATE "C";
  left_orgs text[] COLLATE "C";
  left_lanes text[] COLLATE "C";
  left_seqs bigint[];
  next_seqs bigint[];
  retry record;
BEGIN
  PERFORM runtime.board_lock_lanes(p_locks);
  WITH gone AS (
    DELETE FROM runtime.board_tasks t WHERE t.seq = ANY (p_ended) AND t.claimed_by = p_holder
    RETURNING t.seq, t.agent, t.org_id, t.lane
  )
  SELECT array_agg(g.seq), array_agg(g.seq), array_agg(g.agent), array_agg(g.org_id), array_agg(g.lane)
  INTO settled, left_seqs, left_agents, left_orgs, left_lanes FROM gone g;
  FOR retry IN SELECT r.* FROM json_to_recordset(p_retries) AS r(
    seq bigint, agent text, org text, lane text, delay bigint, leaves boolean, uncounted boolean
  ) LOOP
    given := given || retry.seq;
    UPDATE runtime.board_tasks t SET claimed_by = NULL, held_until = NULL, attempt = t.attempt - retry.uncounted::int,
      due_at = clock_timestamp() + retry.delay * interval '1 ms', lane = CASE WHEN retry.leaves THEN '' ELSE t.lane END
    WHERE t.seq = retry.seq AND t.claimed_by = p_holder;
    CONTINUE WHEN NOT FOUND;
    settled := settled || retry.seq;
    CONTINUE WHEN NOT retry.leaves;
    left_seqs := left_seqs || retry.seq;
    left_agents := left_agents || retry.agent;
    left_orgs := left_orgs || retry.org;
    left_lanes := left_lanes || retry.lane;
  END LOOP;
  IF coalesce(cardinality(settled), 0) < cardinality(given) THEN
    IF p_artifacts IS NOT NULL THEN RAISE EXCEPTION 'a claim was lost' USING ERRCODE = 'KB001'; END IF;
    RETURN QUERY SELECT g.seq, NULL::text FROM unnest(given) AS g(seq)
      WHERE settled IS NULL OR g.seq <> ALL (settled);
  END IF;
  -- Behind the one that left: what was deleted before it is not looked at again.
  SELECT array_agg(b.seq) INTO next_seqs FROM unnest(left_agents, left_orgs, left_lanes, left_seqs) AS l(agent, org, lane, seq)
  CROSS JOIN LATERAL (
    SELECT b.seq FROM runtime.board_tasks b
    WHERE l.lane <> '' AND (b.agent, b.org_id, b.lane, b.seq) > (l.agent, l.org, l.lane, l.seq)
      AND (b.agent, b.org_id, b.lane, b.seq) < (l.agent, l.org, l.lane, 9223372036854775807)
    ORDER BY b.agent, b.org_id, b.lane, b.seq LIMIT 1
  ) b;
  IF next_seqs IS NOT NULL THEN
    RETURN QUERY WITH came AS (
      -- It is due now and not when it was published: other keys that waited meanwhile come first.
      UPDATE runtime.board_tasks t SET ready = true, due_at = clock_timestamp() WHERE t.seq = ANY (next_seqs) RETURNING t.agent
    ) SELECT DISTINCT NULL::bigint, c.agent FROM came c;
  END IF;
  IF p_letters IS NOT NULL THEN PERFORM runtime.board_add_letters(p_letters, coalesce(settled, '{}')); END IF;
  IF p_artifacts IS NOT NULL THEN PERFORM runtime.board_put('{}', p_artifacts, p_tasks, p_letters); END IF;
END $$;
