-- Claims up to p_most tasks of an agent, in turn between the orgs that have any, from the one behind p_after on (ADR-0069).
-- Each org gets p_share at first; what is left is shared by those that have more. p_orgs are orgs whose tasks were claimed
-- lately, and p_froms from when on theirs are looked through.
-- The last row is no task: its org is where the next claim goes on from, and due is in how many milliseconds the next task is.
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
  no_org CONSTANT text COLLATE "C" := chr(1114111);
  wanted int := p_most;
  share int := p_share;
  place text COLLATE "C" := p_after;
  served text COLLATE "C" := p_after;
  is_second boolean := false;
  known text COLLATE "C";
  org text COLLATE "C";
  taken int;
  next_due timestamptz;
  soonest timestamptz;
  hungry text[] := '{}';
  again text[];
BEGIN
  -- A lease is no promise: a claim does not wait for the disk.
  PERFORM set_config('synchronous_commit', 'off', true);
  WHILE wanted > 0 LOOP
    -- The next org that is known, or one before it that is not. The tasks of a known one are not walked through to find it.
    SELECT coalesce(min(u.org COLLATE "C"), no_org) INTO known FROM unnest(p_orgs) AS u(org) WHERE u.org COLLATE "C" > place;
    SELECT t.org_id INTO org FROM runtime.board_tasks t
      WHERE t.agent = p_agent AND t.ready AND t.org_id > place AND t.org_id < known ORDER BY t.org_id LIMIT 1;
    org := coalesce(org, known);
    -- Around once: those behind p_after, then the others.
    EXIT WHEN is_second AND org > p_after;
    IF org = no_org THEN
      is_second := true;
      place := '';
      CONTINUE;
    END IF;
    place := org;
    served := org;
    RETURN QUERY SELECT * FROM runtime.board_claim_of(p_agent, org, least(share, wanted), p_holder, p_lease_ms,
      coalesce(p_froms[array_position(p_orgs, org)], 0));
    GET DIAGNOSTICS taken = ROW_COUNT;
    IF taken = least(share, wanted) THEN
      hungry := hungry || org;
    ELSE
      SELECT t.due_at INTO next_due FROM runtime.board_tasks t
        WHERE t.agent = p_agent AND t.org_id = org AND t.ready AND t.due_at > now() ORDER BY t.due_at, t.seq LIMIT 1;
      soonest := least(soonest, next_due);
    END IF;
    wanted := wanted - taken;
  END LOOP;
  WHILE wanted > 0 AND cardinality(hungry) > 0 LOOP
    again := hungry;
    hungry := '{}';
    share := ceil(wanted::float8 / cardinality(again));
    FOREACH org IN ARRAY again LOOP
      EXIT WHEN wanted = 0;
      RETURN QUERY SELECT * FROM runtime.board_claim_of(p_agent, org, least(share, wanted), p_holder, p_lease_ms,
        coalesce(p_froms[array_position(p_orgs, org)], 0));
      GET DIAGNOSTICS taken = ROW_COUNT;
      IF taken = least(share, wanted) THEN hungry := hungry || org; END IF;
      wanted := wanted - taken;
    END LOOP;
  END LOOP;
  RETURN QUERY SELECT NULL::bigint, NULL::text, served::text, NULL::int,
    ceil(extract(epoch FROM soonest - clock_timestamp()) * 1000)::float8, NULL::uuid, NULL::text, NULL::bigint, NULL::text,
    NULL::text;
END $$;
