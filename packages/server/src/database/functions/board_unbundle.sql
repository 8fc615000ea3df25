-- Gives tasks of a bundle rows of their own, or all of them if p_seq is null: who has the bundle has those.
CREATE FUNCTION runtime.board_unbundle(p_agent text, p_bundle bigint, p_seq bigint[]) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  b runtime.board_bundles;
BEGIN
  SELECT * INTO b FROM runtime.board_bundles o WHERE o.agent = p_agent AND o.seq = p_bundle FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  INSERT INTO runtime.board_queue (seq, agent, head, due_at, claimed_by, held_until, attempt, task_id, artifact_id,
    artifact_version, key, created_at)
  SELECT b.seq + u.at, b.agent, true, b.due_at, b.claimed_by, b.held_until, CASE WHEN b.claimed_by IS NULL THEN 0 ELSE 1 END,
    u.id, u.id, 1, coalesce(u.key, encode(substring(b.own_keys FROM 16 * u.n::int - 15 FOR 16), 'hex')), b.created_at
  FROM unnest(b.ats, b.ids, b.keys) WITH ORDINALITY AS u(at, id, key, n) WHERE p_seq IS NULL OR b.seq + u.at = ANY (p_seq);
  PERFORM runtime.board_leave_bundle(b, ARRAY(
    SELECT u.at FROM unnest(b.ats) AS u(at) WHERE p_seq IS NULL OR b.seq + u.at = ANY (p_seq)));
END $$;
