-- Takes what came for the batches of an agent: the oldest arrivals, with not many more than 10,000 artifacts, and of the open
-- batches those that arrivals belong to, and those that came until p_overdue. Nothing of it if somebody else is at it. The
-- last row says when the oldest came of those that wait on, and whether there are tasks that nobody has: who tells that there is
-- something to do does not say what.
CREATE FUNCTION runtime.board_take_arrivals(p_agent text, p_overdue bigint) RETURNS TABLE (
  oldest bigint, ready boolean, seq bigint, org text, key text, hash text, ids text, versions text, sizes text,
  correlations text[], arrived bigint
)
LANGUAGE plpgsql SET enable_bitmapscan = off SET enable_sort = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  IF (EXISTS (SELECT FROM runtime.board_arrivals r WHERE r.agent = p_agent)
      OR EXISTS (SELECT FROM runtime.board_batches b WHERE b.agent = p_agent AND b.arrived_at <= p_overdue))
    -- Any constant will do, as long as every process uses the same.
    AND pg_try_advisory_xact_lock(7240116, hashtext(p_agent)) THEN
    -- By another statement: it sees what was done by whoever had the lock before. Nobody else changes these rows, and so they
    -- stay where they are.
    RETURN QUERY WITH fresh AS (
      DELETE FROM runtime.board_arrivals r WHERE r.ctid = ANY (ARRAY(
        SELECT o.ctid FROM (
          SELECT o.ctid, sum(o.members) OVER (ORDER BY o.seq) - o.members AS before FROM (
            SELECT o.ctid, o.seq, o.members FROM runtime.board_arrivals o WHERE o.agent = p_agent ORDER BY o.seq LIMIT 500
          ) o
        ) o WHERE o.before < 10000
      ))
      RETURNING r.seq, r.org_id, r.key, encode(sha256(convert_to(r.key, 'UTF8')), 'hex') COLLATE "C" AS key_hash, r.ids,
        r.versions, r.sizes, r.correlations, r.arrived_at
    ), open AS (
      DELETE FROM runtime.board_batches b WHERE b.ctid = ANY (ARRAY(
        SELECT o.ctid FROM (SELECT DISTINCT f.org_id, f.key_hash FROM fresh f) f
        CROSS JOIN LATERAL (
          SELECT o.ctid FROM runtime.board_batches o
          WHERE o.agent = p_agent AND o.org_id = f.org_id AND o.key_hash = f.key_hash OFFSET 0
        ) o
        UNION ALL
        (SELECT o.ctid FROM runtime.board_batches o WHERE o.agent = p_agent AND o.arrived_at <= p_overdue
         ORDER BY o.arrived_at LIMIT 500)
      ))
      RETURNING NULL::bigint AS seq, b.org_id, b.key, b.key_hash, b.ids, b.versions, b.sizes, b.correlations, b.arrived_at
    )
    SELECT NULL::bigint, NULL::boolean, t.seq, t.org_id, t.key, t.key_hash, array_to_string(t.ids, ','),
      CASE WHEN 1 <> ANY (t.versions) THEN array_to_string(t.versions, ',') END, array_to_string(t.sizes, ','), t.correlations,
      t.arrived_at
    FROM (SELECT * FROM open UNION ALL SELECT * FROM fresh) t ORDER BY t.seq NULLS FIRST;
  END IF;
  SELECT min(b.arrived_at) INTO oldest FROM runtime.board_batches b WHERE b.agent = p_agent;
  ready := EXISTS (
    SELECT FROM runtime.board_queue q
    WHERE q.agent = p_agent AND q.head AND q.due_at <= now() AND (q.held_until IS NULL OR q.held_until <= now())
  );
  RETURN NEXT;
END $$;
