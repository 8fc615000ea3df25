-- The whole task as JSON; null if an artifact of it is gone. No versions: each is the first.
CREATE FUNCTION runtime.board_task_body(k runtime.board_tasks) RETURNS text
-- One search for all of them, then hashes: a planner that expects ten would compare each with every other.
LANGUAGE sql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
  SELECT CASE WHEN k.artifact_ids IS NULL THEN k.body ELSE (
    SELECT CASE WHEN count(*) = cardinality(k.artifact_ids)
      THEN '{"artifacts":[' || string_agg(a.body, ',' ORDER BY u.n) || '],' || substr(k.body, 2) END
    FROM unnest(k.artifact_ids, k.artifact_versions) WITH ORDINALITY AS u(id, version, n)
    JOIN (
      SELECT a.id, a.version, a.body FROM runtime.board_artifacts a WHERE a.id = ANY (k.artifact_ids) OFFSET 0
    ) a ON a.id = u.id AND a.version = coalesce(u.version, 1)
  ) END
$$;
