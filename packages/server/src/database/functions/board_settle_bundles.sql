-- Settles tasks of bundles as done; p_ats has for each bundle those of it, in order, as the text of an array. Answers those
-- that have left their bundle; with p_all, where outputs follow, that fails it all. The caller sorts by agent and bundle.
CREATE FUNCTION runtime.board_settle_bundles(p_holder text, p_agent text[], p_bundle bigint[], p_ats text[], p_all boolean)
RETURNS TABLE (seq bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  s record;
  b runtime.board_bundles;
BEGIN
  FOR s IN
    SELECT u.agent, u.bundle, u.ats::int[] AS ats FROM unnest(p_agent, p_bundle, p_ats) AS u(agent, bundle, ats)
  LOOP
    -- Most times it is all of it.
    DELETE FROM runtime.board_bundles o
    WHERE o.agent = s.agent AND o.seq = s.bundle AND o.claimed_by = p_holder AND o.ats = s.ats;
    CONTINUE WHEN FOUND;
    SELECT * INTO b FROM runtime.board_bundles o
    WHERE o.agent = s.agent AND o.seq = s.bundle AND o.claimed_by = p_holder FOR UPDATE;
    IF NOT FOUND OR NOT s.ats <@ b.ats THEN
      IF p_all THEN RAISE EXCEPTION 'a claim was lost' USING ERRCODE = 'KB001'; END IF;
      RETURN QUERY SELECT s.bundle + a.at FROM unnest(s.ats) AS a(at) WHERE a.at <> ALL (coalesce(b.ats, '{}'));
      CONTINUE WHEN b.ats IS NULL;
    END IF;
    PERFORM runtime.board_leave_bundle(b, s.ats);
  END LOOP;
END $$;
