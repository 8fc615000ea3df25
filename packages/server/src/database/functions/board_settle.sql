-- board_settle finds the next of a lane by the index of lanes. Asked for one agent and one lane, a planner that has seen one
-- busy lane takes the first of the whole queue in the order of its key, past all that was done before: as a range it cannot.
CREATE FUNCTION runtime.board_settle(
  p_holder text, p_seq bigint[], p_attempt int[], p_kind text[], p_delay_ms bigint[], p_agent text[],
  p_leaves boolean[], p_d_id uuid[], p_d_task uuid[], p_d_correlation text[], p_d_body text[], p_all boolean,
  p_want boolean[], p_lease_ms bigint, p_l_agent text[], p_l_lane text[]
) RETURNS TABLE (
  n int, promoted text, claimed boolean, seq bigint, lane text, attempt int, task_id uuid, key text, created_at bigint,
  artifact text, task text
)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off
  SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off AS $$
#variable_conflict use_column
DECLARE
  settled int[];
  -- The lanes that lose their heads: a task may have been given one since it was claimed.
  left_agent text[];
  left_lane text[];
  left_want boolean[];
  retried record;
BEGIN
  IF p_l_lane IS NOT NULL OR 'retry' = ANY (p_kind) THEN
    PERFORM runtime.board_lock_lanes(p_holder, p_seq, p_l_agent, p_l_lane);
    -- A head that it waited for may be gone, and the next one is not locked. Who has lanes waits for no other for long:
    -- if that one waits for it in turn, both would until the database finds out.
    PERFORM set_config('lock_timeout', '100ms', true);
  END IF;
  WITH gone AS (
    DELETE FROM runtime.board_queue q
    USING unnest(p_seq, p_attempt, p_kind, p_want) WITH ORDINALITY AS s(seq, attempt, kind, want, n)
    WHERE q.seq = s.seq AND q.claimed_by = p_holder AND q.attempt = coalesce(s.attempt, 1)
      AND s.kind IS DISTINCT FROM 'retry'
    RETURNING s.n, s.want, q.agent, q.lane
  )
  SELECT array_agg(g.n), array_agg(g.agent) FILTER (WHERE g.lane IS NOT NULL),
    array_agg(g.lane) FILTER (WHERE g.lane IS NOT NULL), array_agg(g.want) FILTER (WHERE g.lane IS NOT NULL)
  INTO settled, left_agent, left_lane, left_want FROM gone g;
  IF 'retry' = ANY (p_kind) THEN
    -- Leaving a lane is taking its head away: it has waited for those who add to the lane, as a deletion does.
    FOR retried IN
      SELECT s.n::int AS n, s.delay, s.leaves, s.want, q.seq, q.agent, q.lane
      FROM unnest(p_seq, p_attempt, p_kind, p_delay_ms, p_leaves, p_want) WITH ORDINALITY
        AS s(seq, attempt, kind, delay, leaves, want, n)
      CROSS JOIN LATERAL (
        SELECT q.seq, q.agent, q.lane FROM runtime.board_queue q
        WHERE q.seq = s.seq AND q.claimed_by = p_holder AND q.attempt = coalesce(s.attempt, 1) FOR UPDATE
      ) q WHERE s.kind = 'retry' ORDER BY s.n
    LOOP
      UPDATE runtime.board_queue q
      SET claimed_by = NULL, held_until = NULL, due_at = now() + retried.delay * interval '1 ms',
        lane = CASE WHEN NOT retried.leaves THEN q.lane END
      WHERE q.seq = retried.seq;
      settled := settled || retried.n;
      IF retried.leaves AND retried.lane IS NOT NULL THEN
        left_agent := left_agent || retried.agent;
        left_lane := left_lane || retried.lane;
        left_want := left_want || retried.want;
      END IF;
    END LOOP;
  END IF;
  IF coalesce(cardinality(settled), 0) < cardinality(p_seq) THEN
    IF p_all THEN RAISE EXCEPTION 'a claim was lost' USING ERRCODE = 'KB001'; END IF;
    RETURN QUERY SELECT s, NULL::text, NULL::boolean, NULL::bigint, NULL::text, NULL::int, NULL::uuid, NULL::text,
      NULL::bigint, NULL::text, NULL::text
      FROM generate_series(1, cardinality(p_seq)) AS s WHERE s <> ALL (coalesce(settled, '{}'));
  END IF;
  IF 'dead' = ANY (p_kind) THEN
    INSERT INTO runtime.board_dead_letters (agent, id, task_id, correlation_id, body)
    SELECT s.agent, s.id, s.task, s.correlation, s.body
    FROM unnest(p_kind, p_agent, p_d_id, p_d_task, p_d_correlation, p_d_body) WITH ORDINALITY
      AS s(kind, agent, id, task, correlation, body, n)
    WHERE s.kind = 'dead' AND s.n = ANY (settled) ON CONFLICT DO NOTHING;
  END IF;
  IF left_lane IS NULL THEN RETURN; END IF;
  RETURN QUERY WITH came AS (
    UPDATE runtime.board_queue q
    SET head = true, claimed_by = CASE WHEN next.want THEN p_holder END,
      attempt = q.attempt + CASE WHEN next.want THEN 1 ELSE 0 END,
      held_until = CASE WHEN next.want THEN now() + p_lease_ms * interval '1 ms' END
    FROM (
      SELECT b.seq, l.want FROM (
        SELECT s.agent COLLATE "C" AS agent, s.lane COLLATE "C" AS lane, bool_or(s.want) AS want
        FROM unnest(left_agent, left_lane, left_want) AS s(agent, lane, want) GROUP BY 1, 2
      ) l CROSS JOIN LATERAL (
        SELECT b.seq FROM runtime.board_queue b
        WHERE (b.agent, b.lane) >= (l.agent, l.lane) AND (b.agent, b.lane) <= (l.agent, l.lane) AND NOT b.head
        ORDER BY b.agent, b.lane, b.seq LIMIT 1
      ) b OFFSET 0
    ) next WHERE q.seq = next.seq RETURNING q.*
  )
  SELECT NULL::int, c.agent, c.claimed_by IS NOT NULL, c.seq, c.lane, c.attempt, c.task_id, c.key, c.created_at, a.body, k.body
  FROM came c
  LEFT JOIN LATERAL (
    SELECT a.body FROM runtime.board_artifacts a
    WHERE c.claimed_by IS NOT NULL AND a.id = c.artifact_id AND a.version = c.artifact_version OFFSET 0
  ) a ON true
  LEFT JOIN LATERAL (
    SELECT runtime.board_task_body(k) AS body FROM runtime.board_tasks k
    WHERE c.claimed_by IS NOT NULL AND c.artifact_id IS NULL
      AND k.task_id = c.task_id AND k.agent = c.agent AND k.replay_id = c.replay_id OFFSET 0
  ) k ON true;
END $$;
