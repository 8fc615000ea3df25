-- The board at half the cost: a claim touches no index, what nothing can follow has no lane, numbers are taken in one go.

-- Who writes many takes one number, and counts on from it.
ALTER SEQUENCE runtime.board_seq INCREMENT BY 1048576;

-- The age of what has an id without a time: the default partitions are cleaned by it.
ALTER TABLE runtime.board_artifacts ADD COLUMN stored_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX board_artifacts_other_age ON runtime.board_artifacts_other (stored_at);
ALTER TABLE runtime.board_tasks ADD COLUMN stored_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX board_tasks_other_age ON runtime.board_tasks_other (stored_at);

-- When the lease of whoever has a task ends. In no index: a claim is an update that touches none, if the page has room.
-- `due_at` is only when a task may be claimed, from now on. `lane` is null too for the first version of an artifact whose
-- key nothing but its later versions can share: one of those gives it the lane when it comes.
ALTER TABLE runtime.board_queue ADD COLUMN held_until timestamptz;
ALTER TABLE runtime.board_queue SET (fillfactor = 45);
UPDATE runtime.board_queue SET held_until = due_at, due_at = now() WHERE claimed_by IS NOT NULL;

DROP FUNCTION runtime.board_route;
DROP FUNCTION runtime.board_enqueue;
DROP FUNCTION runtime.board_settle;
DROP FUNCTION runtime.board_put;
DROP FUNCTION runtime.board_line_up;

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
LANGUAGE plpgsql SET enable_nestloop = off SET enable_hashjoin = on SET enable_mergejoin = on AS $$
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

-- Later versions of artifacts come whose tasks share a lane with nothing but those of other versions: the task of the
-- first has none yet. It is given one, unless it was settled or waits for another try: then later ones pass it.
CREATE FUNCTION runtime.board_adopt(p_id uuid[], p_agent text[], p_lane text[]) RETURNS void
LANGUAGE sql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  UPDATE runtime.board_queue q SET lane = e.lane
  FROM (
    SELECT f.seq, u.lane FROM (
      SELECT DISTINCT u.id, u.agent COLLATE "C" AS agent, u.lane COLLATE "C" AS lane
      FROM unnest(p_id, p_agent, p_lane) AS u(id, agent, lane)
    ) u
    CROSS JOIN LATERAL (
      SELECT a.seq + array_position(a.routes, u.agent) AS seq FROM runtime.board_artifacts a
      WHERE a.id = u.id AND a.version = 1 OFFSET 0
    ) a
    CROSS JOIN LATERAL (
      SELECT f.seq FROM runtime.board_queue f
      WHERE f.seq = a.seq AND f.agent = u.agent AND f.task_id = u.id AND f.lane IS NULL
        AND (f.claimed_by IS NOT NULL OR f.attempt = 0 OR f.due_at <= now()) OFFSET 0
    ) f
    WHERE NOT EXISTS (
      SELECT FROM runtime.board_queue h WHERE h.agent = u.agent AND h.lane = u.lane AND h.head
    )
    ORDER BY f.seq OFFSET 0
  ) e WHERE q.seq = e.seq AND q.lane IS NULL
$$;

-- Puts artifacts on the board with the tasks that they lead to, and the dead letters; an id and version that is there
-- fails it all. They are left to the router while others wait for it: else they would pass earlier ones of their key.
-- p_at and p_t_at count on from the number that is taken: the tasks of an artifact follow it. The caller sorts artifacts
-- by id and version: no deadlock. Null for the versions is 1, for tasks' ids those of their artifacts, and for those:
-- each artifact has one task.
-- Answers one row with n = 0 if they were routed, and one for each task that was claimed.
CREATE FUNCTION runtime.board_put(
  p_route boolean, p_at int[], p_id uuid[], p_version int[], p_org text[], p_type text[], p_correlation text[], p_routes text[], p_body text[],
  p_t_at int[], p_t_artifact uuid[], p_t_version int[], p_t_correlation text[], p_t_agent text[], p_t_lane text[], p_t_key text[], p_t_task uuid[], p_t_created bigint[], p_t_want boolean[],
  p_a_id uuid[], p_a_agent text[], p_a_lane text[],
  p_d_agent text[], p_d_id uuid[], p_d_task uuid[], p_d_correlation text[], p_d_body text[],
  p_holder text, p_lease_ms bigint
) RETURNS TABLE (n int, seq bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  routed boolean := p_route AND NOT EXISTS (SELECT FROM runtime.board_unrouted);
  base bigint;
BEGIN
  IF cardinality(p_id) = 0 THEN RETURN; END IF;
  IF cardinality(p_id) + coalesce(cardinality(p_t_at), 0) >= 1048576 THEN
    RAISE EXCEPTION 'too many artifacts and tasks at a time';
  END IF;
  base := nextval('runtime.board_seq');
  INSERT INTO runtime.board_artifacts (id, version, seq, org_id, type, correlation_id, routes, body)
  SELECT u.id, coalesce(u.version, 1), base + u.at, u.org, u.type, u.correlation,
    CASE WHEN routed THEN string_to_array(u.routes, ',') END, u.body
  FROM unnest(p_at, p_id, p_version, p_org, p_type, p_correlation, p_routes, p_body)
    AS u(at, id, version, org, type, correlation, routes, body);
  IF NOT routed THEN
    INSERT INTO runtime.board_unrouted (seq, id, version)
    SELECT base + u.at, u.id, coalesce(u.version, 1) FROM unnest(p_at, p_id, p_version) AS u(at, id, version);
    RETURN;
  END IF;
  IF p_d_id IS NOT NULL THEN
    INSERT INTO runtime.board_dead_letters (agent, id, task_id, correlation_id, body)
    SELECT d.agent, d.id, d.task, d.correlation, d.body
    FROM unnest(p_d_agent, p_d_id, p_d_task, p_d_correlation, p_d_body) AS d(agent, id, task, correlation, body)
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN QUERY SELECT 0, 0::bigint;
  IF p_a_id IS NOT NULL THEN PERFORM runtime.board_adopt(p_a_id, p_a_agent, p_a_lane); END IF;
  RETURN QUERY SELECT l.n, l.seq FROM runtime.board_line_up(
    ARRAY(SELECT base + t FROM unnest(p_t_at) AS t), p_t_agent, p_t_lane, p_t_key, coalesce(p_t_task, p_t_artifact, p_id), NULL,
    coalesce(p_t_artifact, p_id), coalesce(p_t_version, array_fill(1, ARRAY[cardinality(p_t_at)])), p_t_correlation, p_t_created,
    p_t_want, p_holder, p_lease_ms) l;
END $$;

-- Locks the heads that p_holder is about to take away, and those of the lanes that tasks are about to be added to, all in
-- the one order in which lanes are taken: whoever did that in two steps could wait for another who waits for it.
CREATE FUNCTION runtime.board_lock_lanes(p_holder text, p_seq bigint[], p_agent text[], p_lane text[]) RETURNS void
LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  locked bigint;
BEGIN
  SELECT count(taken.seq) + count(kept.seq) INTO locked
  FROM (
    SELECT l.agent, l.lane, bool_or(l.leaves) AS leaves FROM (
      SELECT q.agent, q.lane, true AS leaves FROM unnest(p_seq) AS s(seq)
      CROSS JOIN LATERAL (
        SELECT q.agent, q.lane FROM runtime.board_queue q
        WHERE q.seq = s.seq AND q.claimed_by = p_holder AND q.lane IS NOT NULL OFFSET 0
      ) q
      UNION ALL
      SELECT l.agent COLLATE "C", l.lane COLLATE "C", false FROM unnest(p_agent, p_lane) AS l(agent, lane)
    ) l GROUP BY 1, 2 ORDER BY 1, 2 OFFSET 0
  ) l
  LEFT JOIN LATERAL (
    SELECT h.seq FROM runtime.board_queue h WHERE l.leaves AND h.agent = l.agent AND h.lane = l.lane AND h.head
    OFFSET 0 FOR UPDATE
  ) taken ON true
  LEFT JOIN LATERAL (
    SELECT h.seq FROM runtime.board_queue h WHERE NOT l.leaves AND h.agent = l.agent AND h.lane = l.lane AND h.head
    OFFSET 0 FOR KEY SHARE
  ) kept ON true;
END $$;

-- Settles what p_holder still has: done and dead leave the queue, a retry waits, and the next of each lane comes forward.
-- Answers the numbers of those that it has not any more, and who came forward: claimed for p_holder where it wants that
-- (p_want). Whoever lost its claim changes nothing; with p_all, where outputs follow, that fails it all. p_l_agent and
-- p_l_lane are the lanes of the outputs' tasks. The caller sorts by agent and lane: no deadlock. Null for the attempts is
-- 1, for the kinds done, for p_leaves true, for p_want false.
CREATE FUNCTION runtime.board_settle(
  p_holder text, p_seq bigint[], p_attempt int[], p_kind text[], p_delay_ms bigint[], p_agent text[],
  p_leaves boolean[], p_d_id uuid[], p_d_task uuid[], p_d_correlation text[], p_d_body text[], p_all boolean,
  p_want boolean[], p_lease_ms bigint, p_l_agent text[], p_l_lane text[]
) RETURNS TABLE (
  n int, promoted text, claimed boolean, seq bigint, lane text, attempt int, task_id uuid, key text, created_at bigint,
  artifact text, task text
)
LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
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
        WHERE b.agent = l.agent AND b.lane = l.lane AND NOT b.head ORDER BY b.seq LIMIT 1
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
    SELECT k.body FROM runtime.board_tasks k
    WHERE c.claimed_by IS NOT NULL AND c.artifact_id IS NULL
      AND k.task_id = c.task_id AND k.agent = c.agent AND k.replay_id = c.replay_id OFFSET 0
  ) k ON true;
END $$;

-- Puts tasks before their agents. Those that were there before, by id, agent and replay, are passed over, settled or not;
-- p_mark is how the artifact's row would say that routing made the same task. Answers a row for each that is new.
CREATE FUNCTION runtime.board_enqueue(
  p_agent text[], p_lane text[], p_key text[], p_task uuid[], p_replay text[], p_correlation text[], p_created bigint[],
  p_body text[], p_artifact uuid[], p_version int[], p_mark text[]
) RETURNS TABLE (n int)
LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  fresh int[];
  base bigint;
BEGIN
  WITH made AS (
    INSERT INTO runtime.board_tasks AS t (task_id, agent, replay_id, correlation_id, body)
    SELECT u.task, u.agent, u.replay, u.correlation, u.body
    FROM unnest(p_task, p_agent, p_replay, p_correlation, p_body, p_artifact, p_version, p_mark)
      AS u(task, agent, replay, correlation, body, artifact, version, mark)
    WHERE u.replay <> '' OR NOT EXISTS (
      SELECT FROM runtime.board_artifacts a WHERE a.id = u.artifact AND a.version = u.version AND u.mark = ANY (a.routes))
    ORDER BY u.task, u.agent COLLATE "C", u.replay COLLATE "C"
    ON CONFLICT DO NOTHING RETURNING t.task_id, t.agent, t.replay_id
  )
  SELECT array_agg(u.n ORDER BY u.n) INTO fresh FROM (
    SELECT min(u.n) AS n FROM made m
    JOIN unnest(p_task, p_agent, p_replay) WITH ORDINALITY AS u(task, agent, replay, n)
      ON u.task = m.task_id AND u.agent = m.agent AND u.replay = m.replay_id
    GROUP BY u.task, u.agent, u.replay
  ) u;
  IF fresh IS NULL THEN RETURN; END IF;
  UPDATE runtime.board_dead_letters d SET replay_id = u.replay
  FROM unnest(p_task, p_agent, p_replay) WITH ORDINALITY AS u(task, agent, replay, n)
  WHERE d.task_id = u.task AND d.agent = u.agent AND u.replay <> '' AND u.n = ANY (fresh);
  base := nextval('runtime.board_seq');
  PERFORM FROM runtime.board_line_up(
    ARRAY(SELECT base + i FROM unnest(fresh) AS i), ARRAY(SELECT p_agent[i] FROM unnest(fresh) AS i), ARRAY(SELECT p_lane[i] FROM unnest(fresh) AS i),
    ARRAY(SELECT p_key[i] FROM unnest(fresh) AS i), ARRAY(SELECT p_task[i] FROM unnest(fresh) AS i),
    ARRAY(SELECT p_replay[i] FROM unnest(fresh) AS i), array_fill(NULL::uuid, ARRAY[cardinality(fresh)]),
    array_fill(NULL::int, ARRAY[cardinality(fresh)]), ARRAY(SELECT p_correlation[i] FROM unnest(fresh) AS i),
    ARRAY(SELECT p_created[i] FROM unnest(fresh) AS i), array_fill(false, ARRAY[cardinality(fresh)]), NULL, 0);
  RETURN QUERY SELECT unnest(fresh);
END $$;

-- Routes artifacts that were left to the router, and takes them off its list. All their tasks have lanes.
CREATE FUNCTION runtime.board_route(
  p_seq bigint[], p_id uuid[], p_version int[], p_routes text[],
  p_t_at int[], p_t_artifact uuid[], p_t_version int[], p_t_correlation text[], p_t_agent text[], p_t_lane text[], p_t_key text[], p_t_task uuid[], p_t_created bigint[],
  p_a_id uuid[], p_a_agent text[], p_a_lane text[],
  p_d_agent text[], p_d_id uuid[], p_d_task uuid[], p_d_correlation text[], p_d_body text[]
) RETURNS void
LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  base bigint := nextval('runtime.board_seq');
BEGIN
  DELETE FROM runtime.board_unrouted u USING unnest(p_seq) AS s(seq) WHERE u.seq = s.seq;
  UPDATE runtime.board_artifacts a SET routes = string_to_array(u.routes, ',')
  FROM unnest(p_id, p_version, p_routes) AS u(id, version, routes) WHERE a.id = u.id AND a.version = u.version;
  INSERT INTO runtime.board_dead_letters (agent, id, task_id, correlation_id, body)
  SELECT d.agent, d.id, d.task, d.correlation, d.body
  FROM unnest(p_d_agent, p_d_id, p_d_task, p_d_correlation, p_d_body) AS d(agent, id, task, correlation, body)
  ON CONFLICT DO NOTHING;
  IF p_a_id IS NOT NULL THEN PERFORM runtime.board_adopt(p_a_id, p_a_agent, p_a_lane); END IF;
  PERFORM FROM runtime.board_line_up(
    ARRAY(SELECT base + t FROM unnest(p_t_at) AS t), p_t_agent, p_t_lane, p_t_key, coalesce(p_t_task, p_t_artifact), NULL,
    p_t_artifact, coalesce(p_t_version, array_fill(1, ARRAY[cardinality(p_t_at)])), p_t_correlation, p_t_created,
    NULL, NULL, 0);
END $$;
