-- Locks the heads that p_holder is about to take away, and those of the lanes that tasks are about to be added to, all in
-- the one order in which lanes are taken: whoever did that in two steps could wait for another who waits for it.
CREATE FUNCTION runtime.board_lock_lanes(p_holder text, p_seq bigint[], p_agent text[], p_lane text[]) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  locked bigint;
BEGIN
  SELECT count(taken.seq) + count(kept.seq) INTO locked
  FROM (
    SELECT l.agent, l.lane, bool_or(l.leaves) AS leaves FROM (
      SELECT q.agent, q.lane, true AS leaves FROM unnest(p_seq) AS s(seq)
      CROSS JOIN LATERAL (
        SELECT q.agent, q.lane FROM runtime.board_queue q
        WHERE q.seq = s.seq AND q.claimed_by = p_holder AND q.lane IS NOT NULL OFFSET 0
      ) q
      UNION ALL
      SELECT l.agent COLLATE "C", l.lane COLLATE "C", false FROM unnest(p_agent, p_lane) AS l(agent, lane)
    ) l GROUP BY 1, 2 ORDER BY 1, 2 OFFSET 0
  ) l
  LEFT JOIN LATERAL (
    SELECT h.seq FROM runtime.board_queue h WHERE l.leaves AND h.agent = l.agent AND h.lane = l.lane AND h.head
    OFFSET 0 FOR UPDATE
  ) taken ON true
  LEFT JOIN LATERAL (
    SELECT h.seq FROM runtime.board_queue h WHERE NOT l.leaves AND h.agent = l.agent AND h.lane = l.lane AND h.head
    OFFSET 0 FOR KEY SHARE
  ) kept ON true;
END $$;
