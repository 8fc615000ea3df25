-- Lines tasks up. The first of a lane is its head, by a unique index: whoever comes at the same time waits for it. The
-- others stand behind it, and whoever adds one locks the head until it commits: a settlement that takes the head away
-- waits for that, and so sees who is next. All take lanes in the same order, and nobody who has made a head waits for a
-- settlement: no deadlock. Answers which tasks were claimed for p_holder: those that are heads and that it wants.
-- Arrays may be null where each element would be: lanes, replays, correlations, artifacts.
CREATE FUNCTION runtime.board_line_up(
  p_seq bigint[], p_agent text[], p_lane text[], p_key text[], p_task uuid[], p_replay text[], p_artifact uuid[],
  p_version int[], p_correlation text[], p_created bigint[], p_want boolean[], p_holder text, p_lease_ms bigint
) RETURNS TABLE (n int, seq bigint)
-- A planner that expects ten tasks would compare each of thousands with every other. Lookups are lateral: one by one.
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET enable_nestloop = off SET enable_hashjoin = on SET enable_mergejoin = on AS $$
#variable_conflict use_column
DECLARE
  total int := coalesce(cardinality(p_agent), 0);
  busy_agent text[];
  busy_lane text[];
  placed bigint[];
  lost bigint[];
  behind int;
BEGIN
  IF total = 0 THEN RETURN; END IF;
  IF p_lane IS NULL THEN
    INSERT INTO runtime.board_queue (seq, agent, head, due_at, claimed_by, held_until, attempt, task_id, replay_id,
      artifact_id, artifact_version, key, correlation_id, created_at)
    SELECT t.seq, t.agent, true, now(), CASE WHEN t.want THEN p_holder END,
      CASE WHEN t.want THEN now() + p_lease_ms * interval '1 ms' END, CASE WHEN t.want THEN 1 ELSE 0 END,
      t.task, coalesce(t.replay, ''), t.artifact, t.version, t.key, t.correlation, t.created
    FROM unnest(p_seq, p_agent, p_key, p_task, p_replay, p_artifact, p_version, p_correlation, p_created, p_want)
      AS t(seq, agent, key, task, replay, artifact, version, correlation, created, want);
    IF p_holder IS NULL THEN RETURN; END IF;
    RETURN QUERY SELECT t.n::int, t.seq FROM unnest(p_seq, p_want) WITH ORDINALITY AS t(seq, want, n) WHERE t.want;
    RETURN;
  END IF;
  -- A head that is settled in this moment is waited for, and then it is not there.
  SELECT array_agg(h.agent), array_agg(h.lane) INTO busy_agent, busy_lane
  FROM (
    SELECT DISTINCT t.agent COLLATE "C" AS agent, t.lane COLLATE "C" AS lane
    FROM unnest(p_agent, p_lane) AS t(agent, lane) WHERE t.lane IS NOT NULL ORDER BY 1, 2
  ) d
  CROSS JOIN LATERAL (
    SELECT h.agent, h.lane FROM runtime.board_queue h WHERE h.agent = d.agent AND h.lane = d.lane AND h.head
    OFFSET 0 FOR KEY SHARE
  ) h;
  WITH placed AS (
    INSERT INTO runtime.board_queue AS q (seq, agent, lane, head, due_at, claimed_by, held_until, attempt, task_id,
      replay_id, artifact_id, artifact_version, key, correlation_id, created_at)
    SELECT t.seq, t.agent, t.lane, t.head, now(), CASE WHEN t.head AND t.want THEN p_holder END,
      CASE WHEN t.head AND t.want THEN now() + p_lease_ms * interval '1 ms' END,
      CASE WHEN t.head AND t.want THEN 1 ELSE 0 END,
      t.task, coalesce(t.replay, ''), t.artifact, t.version, t.key, t.correlation, t.created
    FROM (
      SELECT t.*, t.lane IS NULL OR b.lane IS NULL
        AND row_number() OVER (PARTITION BY t.agent COLLATE "C", t.lane COLLATE "C" ORDER BY t.seq) = 1 AS head
      FROM unnest(p_seq, p_agent, p_lane, p_key, p_task, p_replay, p_artifact, p_version, p_correlation, p_created, p_want)
        AS t(seq, agent, lane, key, task, replay, artifact, version, correlation, created, want)
      LEFT JOIN unnest(busy_agent, busy_lane) AS b(agent, lane)
        ON b.agent COLLATE "C" = t.agent AND b.lane COLLATE "C" = t.lane
    ) t ORDER BY t.agent COLLATE "C", t.lane COLLATE "C", t.seq
    ON CONFLICT (agent, lane) WHERE head AND lane IS NOT NULL DO NOTHING
    RETURNING q.seq
  ) SELECT array_agg(p.seq) INTO placed FROM placed p;
  IF coalesce(cardinality(placed), 0) < total THEN
    -- Another made the head of a lane in this moment. It stands behind that, unless it would have to wait once more.
    lost := ARRAY(SELECT s FROM unnest(p_seq) AS s EXCEPT SELECT s FROM unnest(placed) AS s);
    INSERT INTO runtime.board_queue AS q (seq, agent, lane, head, due_at, task_id, replay_id, artifact_id,
      artifact_version, key, correlation_id, created_at)
    SELECT t.seq, t.agent, t.lane, false, now(), t.task, coalesce(t.replay, ''), t.artifact, t.version, t.key,
      t.correlation, t.created
    FROM unnest(p_seq, p_agent, p_lane, p_key, p_task, p_replay, p_artifact, p_version, p_correlation, p_created)
      AS t(seq, agent, lane, key, task, replay, artifact, version, correlation, created)
    JOIN unnest(lost) AS l(seq) ON l.seq = t.seq
    CROSS JOIN LATERAL (
      SELECT FROM runtime.board_queue h WHERE h.agent = t.agent COLLATE "C" AND h.lane = t.lane COLLATE "C" AND h.head
      OFFSET 0 FOR KEY SHARE SKIP LOCKED
    ) h;
    GET DIAGNOSTICS behind = ROW_COUNT;
    IF behind < cardinality(lost) THEN
      RAISE EXCEPTION 'the head of a lane left' USING ERRCODE = '40001';
    END IF;
  END IF;
  IF p_holder IS NULL THEN RETURN; END IF;
  RETURN QUERY SELECT t.n::int, t.seq FROM unnest(p_seq, p_want) WITH ORDINALITY AS t(seq, want, n)
    CROSS JOIN LATERAL (
      SELECT FROM runtime.board_queue q WHERE q.seq = t.seq AND q.claimed_by = p_holder OFFSET 0
    ) q WHERE t.want ORDER BY t.n;
END $$;
