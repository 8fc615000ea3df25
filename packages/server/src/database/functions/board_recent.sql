-- The newest artifacts of an org, at most p_limit of the last p_window, of a type if it is given. Runs follow each other, so
-- that no more of them are read than it takes: a planner that expects few would collect all that the org ever had, and
-- sort it. The bounds of a run say in which days to look.
CREATE FUNCTION runtime.board_recent(p_org text, p_type text, p_limit int, p_window int) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off AS $$
BEGIN
  RETURN QUERY SELECT r.body FROM (
    SELECT l.seq AS last, a.type, a.seq, a.body FROM (
      SELECT a.seq, CASE a.run WHEN '{}' THEN ARRAY[a.id] ELSE a.run END AS ids, CASE a.run WHEN '{}' THEN a.version ELSE 1 END AS version
      FROM runtime.board_artifacts a WHERE a.org_id = p_org AND a.run IS NOT NULL ORDER BY a.seq DESC LIMIT p_window
    ) l
    CROSS JOIN LATERAL (
      SELECT a.type, a.seq, a.body FROM runtime.board_artifacts a
      WHERE a.id = ANY (l.ids) AND a.id >= l.ids[1] AND a.id <= l.ids[cardinality(l.ids)] AND a.version = l.version OFFSET 0
    ) a
    ORDER BY l.seq DESC, a.seq DESC LIMIT p_window
  ) r WHERE p_type IS NULL OR r.type = p_type ORDER BY r.last DESC, r.seq DESC LIMIT p_limit;
END $$;
