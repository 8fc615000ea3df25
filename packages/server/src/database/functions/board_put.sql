-- Puts artifacts on the board with their tasks, and dead letters where matching failed; an id and version that is there fails
-- it all. p_tasks is null if the caller does not route. Answers whether they were routed: not while others wait for the
-- router, or they would pass earlier ones of their key.
CREATE OR REPLACE FUNCTION runtime.board_put(p_locks int[], p_artifacts json, p_tasks json, p_letters json) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  base bigint;
  routed boolean;
BEGIN
  PERFORM runtime.board_lock_lanes(p_locks);
  -- After the locks: in a lane the order of numbers is the order of commits.
  base := nextval('runtime.board_seq');
  routed := p_tasks IS NOT NULL AND NOT EXISTS (SELECT FROM runtime.board_artifacts a WHERE a.routes IS NULL);
  INSERT INTO runtime.board_artifacts (id, version, seq, org_id, type, correlation_id, routes, body)
  SELECT a.id, a.version, base + a.n, a.org, a.type, a.correlation, CASE WHEN routed THEN string_to_array(a.routes, ',') END,
    a.body
  FROM json_to_recordset(p_artifacts) AS a(
    n int, id uuid, version int, org text, type text, correlation text, routes text, body text
  );
  IF routed THEN
    PERFORM runtime.board_add_tasks(base, p_tasks, NULL);
    IF p_letters IS NOT NULL THEN PERFORM runtime.board_add_letters(p_letters, NULL); END IF;
  END IF;
  RETURN routed;
END $$;
