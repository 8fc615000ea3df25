-- Routes artifacts that were left to the router.
CREATE OR REPLACE FUNCTION runtime.board_route(p_locks int[], p_artifacts json, p_tasks json, p_letters json) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
  PERFORM runtime.board_lock_lanes(p_locks);
  UPDATE runtime.board_artifacts a SET routes = string_to_array(u.routes, ',')
  FROM json_to_recordset(p_artifacts) AS u(id uuid, version int, routes text) WHERE a.id = u.id AND a.version = u.version;
  PERFORM runtime.board_add_tasks(nextval('runtime.board_seq'), p_tasks, NULL);
  IF p_letters IS NOT NULL THEN PERFORM runtime.board_add_letters(p_letters, NULL); END IF;
END $$;
