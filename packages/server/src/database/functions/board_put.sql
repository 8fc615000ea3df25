-- Puts artifacts on the board with their tasks, and dead letters where matching failed; an id and version that is there fails
-- it all.
CREATE OR REPLACE FUNCTION runtime.board_put(p_locks int[], p_artifacts json, p_tasks json, p_letters json) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  base bigint;
BEGIN
  PERFORM runtime.board_lock_lanes(p_locks);
  -- After the locks: in a lane the order of numbers is the order of commits.
  base := nextval('runtime.board_seq');
  INSERT INTO runtime.board_artifacts (id, version, seq, org_id, type, correlation_id, routes, body)
  SELECT a.id, a.version, base + a.n, a.org, a.type, a.correlation, string_to_array(a.routes, ','), a.body
  FROM json_to_recordset(p_artifacts) AS a(
    n int, id uuid, version int, org text, type text, correlation text, routes text, body text
  );
  PERFORM runtime.board_add_tasks(base, p_tasks, NULL);
  IF p_letters IS NOT NULL THEN PERFORM runtime.board_add_letters(p_letters, NULL); END IF;
END $$;
