-- Claims up to p_most tasks of an agent, in turn between the orgs that have any, from the one behind p_after on (ADR-0069).
-- Each gets p_share at first; what is left is for those that have more. p_orgs are orgs that are known to have tasks, and
-- p_froms from when on theirs are looked through. Others are found between them, so that the tasks of an org that is known
-- are not walked over.
-- Rows without a number are no tasks: orgs that were found, and in how many milliseconds (due) the next task is.
CREATE OR REPLACE FUNCTION runtime.board_claim(
  p_agent text, p_most int, p_share int, p_holder text, p_lease_ms bigint, p_after text, p_orgs text[], p_froms float8[]
) RETURNS TABLE (
  seq bigint, lane text, org_id text, attempt int, due float8, task_id uuid, key text, created_at bigint, artifact text, task text
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  found text[];
  orgs text[];
  froms float8[];
  taken int;
  more int := 0;
BEGIN
  -- A lease is no promise: a claim does not wait for the disk.
  PERFORM set_config('synchronous_commit', 'off', true);
  SELECT coalesce(array_agg(g.org_id), '{}') INTO found FROM (
    SELECT e.org, lead(e.org, 1, chr(1114111)) OVER (ORDER BY e.org) AS next
    FROM (SELECT u.org COLLATE "C" AS org FROM unnest(p_orgs || ''::text) AS u(org)) e
  ) k CROSS JOIN LATERAL (
    WITH RECURSIVE step AS (
      SELECT k.org AS org_id
      UNION ALL
      SELECT (
        SELECT t.org_id FROM runtime.board_tasks t
        WHERE t.agent = p_agent AND t.ready AND t.org_id > s.org_id AND t.org_id < k.next ORDER BY t.org_id LIMIT 1
      ) FROM step s WHERE s.org_id IS NOT NULL
    ) SELECT s.org_id FROM step s WHERE s.org_id > k.org
  ) g;
  SELECT array_agg(c.org ORDER BY c.org <= p_after, c.org), array_agg(c.from_ms ORDER BY c.org <= p_after, c.org)
  INTO orgs, froms
  FROM (
    SELECT u.org COLLATE "C" AS org, coalesce(u.from_ms, 0) AS from_ms
    FROM unnest(p_orgs || found, p_froms) AS u(org, from_ms)
  ) c;
  RETURN QUERY SELECT * FROM runtime.board_claim_of(p_agent, orgs, froms, p_share, p_most, p_holder, p_lease_ms);
  GET DIAGNOSTICS taken = ROW_COUNT;
  IF taken >= p_share AND taken < p_most THEN
    RETURN QUERY SELECT * FROM runtime.board_claim_of(p_agent, orgs, froms, p_most - taken, p_most - taken, p_holder, p_lease_ms);
    GET DIAGNOSTICS more = ROW_COUNT;
  END IF;
  RETURN QUERY SELECT NULL::bigint, NULL::text, f.org, NULL::int, d.ms, NULL::uuid, NULL::text, NULL::bigint, NULL::text, NULL::text
  FROM unnest(CASE WHEN taken + more < p_most THEN orgs ELSE found END) AS f(org) LEFT JOIN LATERAL (
    SELECT ceil(extract(epoch FROM t.due_at - clock_timestamp()) * 1000)::float8 AS ms FROM runtime.board_tasks t
    WHERE t.agent = p_agent AND t.org_id = f.org AND t.ready AND t.due_at > now() ORDER BY t.due_at, t.seq LIMIT 1
  ) d ON true;
END $$;
