-- Takes tasks out of a bundle that the caller has locked, and has as it is now.
CREATE FUNCTION runtime.board_leave_bundle(b runtime.board_bundles, p_ats int[]) RETURNS void
-- A planner that expects ten would compare each with every other.
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET enable_nestloop = off AS $$
BEGIN
  SELECT array_agg(u.at ORDER BY u.at), array_agg(u.id ORDER BY u.at),
    string_agg(substring(b.own_keys FROM 16 * u.n::int - 15 FOR 16), '' ORDER BY u.at),
    array_agg(u.key ORDER BY u.at) FILTER (WHERE u.key IS NOT NULL)
  INTO b.ats, b.ids, b.own_keys, b.keys
  FROM unnest(b.ats, b.ids, b.keys) WITH ORDINALITY AS u(at, id, key, n)
  LEFT JOIN unnest(p_ats) AS d(at) ON d.at = u.at WHERE d.at IS NULL;
  IF b.ats IS NULL THEN
    DELETE FROM runtime.board_bundles o WHERE o.agent = b.agent AND o.seq = b.seq;
  ELSE
    UPDATE runtime.board_bundles o SET ats = b.ats, ids = b.ids, own_keys = b.own_keys, keys = b.keys
    WHERE o.agent = b.agent AND o.seq = b.seq;
  END IF;
END $$;
