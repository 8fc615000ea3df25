-- The same for claims of p_holder, each with the bundle that it came in. Those that have left it are passed over.
CREATE FUNCTION runtime.board_unbundle_claims(p_holder text, p_agent text[], p_bundle bigint[], p_seq bigint[]) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  u record;
BEGIN
  FOR u IN
    SELECT t.agent COLLATE "C" AS agent, t.bundle, array_agg(t.seq) AS seqs
    FROM unnest(p_agent, p_bundle, p_seq) AS t(agent, bundle, seq) GROUP BY 1, 2 ORDER BY 1, 2
  LOOP
    PERFORM FROM runtime.board_bundles b WHERE b.agent = u.agent AND b.seq = u.bundle AND b.claimed_by = p_holder FOR UPDATE;
    IF FOUND THEN PERFORM runtime.board_unbundle(u.agent, u.bundle, u.seqs); END IF;
  END LOOP;
END $$;
