-- Later versions of artifacts come whose tasks share a lane with nothing but those of other versions: the task of the
-- first has none yet. It is given one, unless it was settled or waits for another try: then later ones pass it.
CREATE FUNCTION runtime.board_adopt(p_id uuid[], p_agent text[], p_lane text[]) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  seqs bigint[];
  lanes text[];
BEGIN
  -- Where it is in a bundle, it leaves that first.
  PERFORM runtime.board_unbundle(f.agent, f.bundle, f.seqs) FROM (
    SELECT u.agent, b.seq AS bundle, array_agg(a.seq) AS seqs FROM (
      SELECT DISTINCT u.id, u.agent COLLATE "C" AS agent FROM unnest(p_id, p_agent) AS u(id, agent)
    ) u
    CROSS JOIN LATERAL (
      SELECT a.seq + array_position(a.routes, u.agent) AS seq FROM runtime.board_artifacts a
      WHERE a.id = u.id AND a.version = 1 OFFSET 0
    ) a
    -- One of those of its commit, whose numbers are less than this apart.
    CROSS JOIN LATERAL (
      SELECT b.seq FROM runtime.board_bundles b
      WHERE b.agent = u.agent AND b.seq <= a.seq AND b.seq > a.seq - 1048576 AND u.id = ANY (b.ids) OFFSET 0
    ) b
    GROUP BY 1, 2 ORDER BY 1, 2 OFFSET 0
  ) f;
  SELECT array_agg(e.seq ORDER BY e.seq), array_agg(e.lane ORDER BY e.seq) INTO seqs, lanes FROM (
    SELECT f.seq, u.lane FROM (
      SELECT DISTINCT u.id, u.agent COLLATE "C" AS agent, u.lane COLLATE "C" AS lane
      FROM unnest(p_id, p_agent, p_lane) AS u(id, agent, lane)
    ) u
    CROSS JOIN LATERAL (
      SELECT a.seq + array_position(a.routes, u.agent) AS seq FROM runtime.board_artifacts a
      WHERE a.id = u.id AND a.version = 1 OFFSET 0
    ) a
    CROSS JOIN LATERAL (
      SELECT f.seq FROM runtime.board_queue f
      WHERE f.seq = a.seq AND f.agent = u.agent AND f.task_id = u.id AND f.lane IS NULL
        AND (f.claimed_by IS NOT NULL OR f.attempt = 0 OR f.due_at <= now()) OFFSET 0
    ) f
    WHERE NOT EXISTS (
      SELECT FROM runtime.board_queue h WHERE h.agent = u.agent AND h.lane = u.lane AND h.head
    )
    OFFSET 0
  ) e;
  UPDATE runtime.board_queue q SET lane = e.lane FROM unnest(seqs, lanes) AS e(seq, lane)
  WHERE q.seq = e.seq AND q.lane IS NULL;
END $$;
