-- Routes artifacts that were left to the router.
CREATE OR REPLACE FUNCTION runtime.board_route(p_locks int[], p_artifacts json, p_tasks json, p_letters json) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
  artifact record;
BEGIN
  PERFORM runtime.board_lock_lanes(p_locks);
  -- One by one: as a join its plan would depend on the statistics of a large table.
  FOR artifact IN SELECT u.* FROM json_to_recordset(p_artifacts) AS u(org text, id uuid, version int, routes text) LOOP
    UPDATE runtime.board_artifacts a SET routes = string_to_array(artifact.routes, ',')
    WHERE a.org_id = artifact.org AND a.id = artifact.id AND a.version = artifact.version;
  END LOOP;
  PERFORM runtime.board_add_tasks(nextval('runtime.board_seq'), p_tasks, NULL);
  IF p_letters IS NOT NULL THEN PERFORM runtime.board_add_letters(p_letters, NULL); END IF;
END $$;
