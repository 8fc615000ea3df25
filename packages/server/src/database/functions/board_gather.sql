-- Adds artifacts to their groups, in the order given, and completes a group with its last one. Answers a row for each that is
-- new: whether its group is to be looked at now, and whether it was kept. Callers sort by lock, so that none waits for another
-- that waits for it. The lock comes first: else one could hold the artifact and wait for the group, another the reverse.
CREATE OR REPLACE FUNCTION runtime.board_gather(p_additions json) RETURNS TABLE (n int, timely boolean, kept boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  a record;
  grp record;
BEGIN
  FOR a IN SELECT * FROM json_to_recordset(p_additions) AS u(
    n int, lock bigint, agent text, id text, version int, now timestamptz, until timestamptz, org text, key text, hash text,
    kind text, slot text, type text, needed int, bytes bigint, max bigint, large boolean, artifact text, correlation text
  ) LOOP
    PERFORM pg_advisory_xact_lock(a.lock);
    -- The open batch goes without an artifact that would make it too large.
    IF a.large THEN
      UPDATE runtime.board_groups g SET state = 'ready', due_at = a.now
      WHERE g.agent = a.agent AND g.org_id = a.org AND g.key_hash = a.hash AND g.state = 'open' AND g.bytes + a.bytes > a.max;
    END IF;
    INSERT INTO runtime.board_gathered (agent, org_id, artifact_id, version, seen_at)
    VALUES (a.agent, a.org, a.id, a.version, a.now) ON CONFLICT DO NOTHING;
    CONTINUE WHEN NOT FOUND;
    -- A type that a join has already adds no member.
    INSERT INTO runtime.board_groups AS g (agent, due_at, org_id, key, key_hash, kind, types, members, bytes, state)
    VALUES (a.agent, a.until, a.org, a.key, a.hash, a.kind, array_remove(ARRAY[a.type], NULL), 1, a.bytes, 'open')
    ON CONFLICT (agent, org_id, key_hash) WHERE state = 'open' DO UPDATE SET
      types = CASE WHEN a.type IS NULL OR a.type = ANY (g.types) THEN g.types ELSE g.types || a.type END,
      members = g.members + CASE WHEN a.type = ANY (g.types) THEN 0 ELSE 1 END,
      bytes = g.bytes + a.bytes
    RETURNING g.group_id, g.members, g.members >= a.needed OR g.bytes >= a.max AS complete INTO grp;
    IF grp.complete THEN
      UPDATE runtime.board_groups g SET state = 'ready', due_at = a.now WHERE g.group_id = grp.group_id;
    END IF;
    INSERT INTO runtime.board_members AS m
      (group_id, slot, place, artifact_id, version, artifact, org_id, correlation_id)
    VALUES (grp.group_id, a.slot, grp.members, a.id, a.version, a.artifact::json, a.org, a.correlation)
    ON CONFLICT (group_id, slot) DO UPDATE SET version = excluded.version, artifact = excluded.artifact,
      correlation_id = excluded.correlation_id
      WHERE m.artifact_id = excluded.artifact_id AND m.version < excluded.version;
    RETURN QUERY SELECT a.n, grp.complete OR grp.members = 1, FOUND;
  END LOOP;
END $$;
