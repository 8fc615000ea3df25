-- The flow of the blackboard on Postgres: artifacts, the queue of open tasks, dead letters.

-- Orders artifacts among each other, and tasks.
CREATE SEQUENCE runtime.board_seq AS bigint;

-- Every version of every artifact. Partitioned by id, because ids of version 7 begin with their time: a day of finished
-- work is dropped as a table. Ids of any other kind are in the default partition.
CREATE TABLE runtime.board_artifacts (
  id uuid NOT NULL,
  version integer NOT NULL,
  seq bigint NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C",
  -- The agents that it was routed to, each as `agent`, or `agent/task` where the task has another id: with the row
  -- itself they are the lasting mark that these tasks were made. Null until it is routed.
  routes text[],
  -- The whole artifact as JSON. Text, since jsonb cannot hold every character that JSON can.
  body text NOT NULL,
  PRIMARY KEY (id, version)
) PARTITION BY RANGE (id);
CREATE INDEX board_artifacts_recent ON runtime.board_artifacts (org_id, seq);
CREATE INDEX board_artifacts_correlation ON runtime.board_artifacts (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE TABLE runtime.board_artifacts_other PARTITION OF runtime.board_artifacts DEFAULT;

-- What a process published that does not route.
CREATE TABLE runtime.board_unrouted (
  seq bigint PRIMARY KEY,
  id uuid NOT NULL,
  version integer NOT NULL
);

-- Tasks that were put before an agent without routing, with all that they hold. They stay after they are settled.
CREATE TABLE runtime.board_tasks (
  task_id uuid NOT NULL,
  agent text COLLATE "C" NOT NULL,
  replay_id text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C",
  body text NOT NULL,
  PRIMARY KEY (task_id, agent, replay_id)
) PARTITION BY RANGE (task_id);
CREATE INDEX board_tasks_correlation ON runtime.board_tasks (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE TABLE runtime.board_tasks_other PARTITION OF runtime.board_tasks DEFAULT;

-- Open tasks, and nothing else: what is settled leaves.
CREATE TABLE runtime.board_queue (
  seq bigint PRIMARY KEY,
  agent text COLLATE "C" NOT NULL,
  -- What keeps it in order with others: its key, its partition, or nothing.
  lane text COLLATE "C",
  -- Whether it is the first of its lane. Only then it may be claimed.
  head boolean NOT NULL,
  -- From when on it may be claimed: at once, after a delay, or when the lease of whoever has it ends.
  due_at timestamptz NOT NULL,
  claimed_by text COLLATE "C",
  -- Claims so far.
  attempt integer NOT NULL DEFAULT 0,
  task_id uuid NOT NULL,
  replay_id text COLLATE "C" NOT NULL DEFAULT '',
  -- The artifact that it is about; null where board_tasks has the task.
  artifact_id uuid,
  artifact_version integer,
  key text NOT NULL,
  correlation_id text COLLATE "C",
  -- Milliseconds.
  created_at bigint NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX board_queue_due ON runtime.board_queue (agent, due_at, seq) WHERE head;
CREATE UNIQUE INDEX board_queue_lane ON runtime.board_queue (agent, lane) WHERE head AND lane IS NOT NULL;
CREATE INDEX board_queue_behind ON runtime.board_queue (agent, lane, seq) WHERE NOT head;
CREATE INDEX board_queue_correlation ON runtime.board_queue (correlation_id) WHERE correlation_id IS NOT NULL;

CREATE TABLE runtime.board_dead_letters (
  agent text COLLATE "C" NOT NULL,
  id uuid NOT NULL,
  seq bigint NOT NULL DEFAULT nextval('runtime.board_seq'),
  task_id uuid NOT NULL,
  correlation_id text COLLATE "C",
  -- The last replay of its task.
  replay_id text,
  failed_at timestamptz NOT NULL DEFAULT now(),
  body text NOT NULL,
  PRIMARY KEY (agent, id)
);
CREATE INDEX board_dead_letters_newest ON runtime.board_dead_letters (agent, seq);
CREATE INDEX board_dead_letters_task ON runtime.board_dead_letters (task_id, agent);
CREATE INDEX board_dead_letters_correlation ON runtime.board_dead_letters (correlation_id, agent, seq)
  WHERE correlation_id IS NOT NULL;
CREATE INDEX board_dead_letters_age ON runtime.board_dead_letters (failed_at);

-- Lines tasks up. The first of a lane is its head, by a unique index: whoever comes at the same time waits for it. The
-- others stand behind it, and whoever adds one locks the head until it commits: a settlement that takes the head away
-- waits for that, and so sees who is next. All take lanes in the same order, and nobody who has made a head waits for a
-- settlement: no deadlock. Answers which tasks were claimed for p_holder: those that are heads and that it wants.
CREATE FUNCTION runtime.board_line_up(
  p_agent text[], p_lane text[], p_key text[], p_task uuid[], p_replay text[], p_artifact uuid[], p_version int[],
  p_correlation text[], p_created bigint[], p_want boolean[], p_holder text, p_lease_ms bigint
) RETURNS TABLE (n int, seq bigint)
-- A planner that expects ten tasks would compare each of thousands with every other. Lookups are lateral: one by one.
LANGUAGE plpgsql SET enable_nestloop = off SET enable_hashjoin = on SET enable_mergejoin = on AS $$
#variable_conflict use_column
DECLARE
  total int := coalesce(cardinality(p_agent), 0);
  seqs bigint[];
  busy_agent text[];
  busy_lane text[];
  placed bigint[];
  lost bigint[];
  behind int;
BEGIN
  IF total = 0 THEN RETURN; END IF;
  seqs := ARRAY(SELECT nextval('runtime.board_seq') FROM generate_series(1, total));
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
    INSERT INTO runtime.board_queue AS q (seq, agent, lane, head, due_at, claimed_by, attempt, task_id, replay_id,
      artifact_id, artifact_version, key, correlation_id, created_at)
    SELECT t.seq, t.agent, t.lane, t.head, CASE WHEN t.head AND t.want THEN now() + p_lease_ms * interval '1 ms' ELSE now() END,
      CASE WHEN t.head AND t.want THEN p_holder END, CASE WHEN t.head AND t.want THEN 1 ELSE 0 END,
      t.task, t.replay, t.artifact, t.version, t.key, t.correlation, t.created
    FROM (
      SELECT t.*, t.lane IS NULL OR b.lane IS NULL
        AND row_number() OVER (PARTITION BY t.agent COLLATE "C", t.lane COLLATE "C" ORDER BY t.seq) = 1 AS head
      FROM unnest(seqs, p_agent, p_lane, p_key, p_task, p_replay, p_artifact, p_version, p_correlation, p_created, p_want)
        AS t(seq, agent, lane, key, task, replay, artifact, version, correlation, created, want)
      LEFT JOIN unnest(busy_agent, busy_lane) AS b(agent, lane)
        ON b.agent COLLATE "C" = t.agent AND b.lane COLLATE "C" = t.lane
    ) t ORDER BY t.agent COLLATE "C", t.lane COLLATE "C", t.seq
    ON CONFLICT (agent, lane) WHERE head AND lane IS NOT NULL DO NOTHING
    RETURNING q.seq
  ) SELECT array_agg(p.seq) INTO placed FROM placed p;
  IF coalesce(cardinality(placed), 0) < total THEN
    -- Another made the head of a lane in this moment. It stands behind that, unless it would have to wait once more.
    lost := ARRAY(SELECT s FROM unnest(seqs) AS s EXCEPT SELECT s FROM unnest(placed) AS s);
    INSERT INTO runtime.board_queue AS q (seq, agent, lane, head, due_at, task_id, replay_id, artifact_id,
      artifact_version, key, correlation_id, created_at)
    SELECT t.seq, t.agent, t.lane, false, now(), t.task, t.replay, t.artifact, t.version, t.key, t.correlation, t.created
    FROM unnest(seqs, p_agent, p_lane, p_key, p_task, p_replay, p_artifact, p_version, p_correlation, p_created)
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
  RETURN QUERY SELECT t.n::int, t.seq FROM unnest(seqs, p_want) WITH ORDINALITY AS t(seq, want, n)
    CROSS JOIN LATERAL (
      SELECT FROM runtime.board_queue q WHERE q.seq = t.seq AND q.claimed_by = p_holder OFFSET 0
    ) q WHERE t.want ORDER BY t.n;
END $$;

-- Puts artifacts on the board with the tasks that they lead to, and the dead letters; an id and version that is there
-- fails it all. They are left to the router while others wait for it: else they would pass earlier ones of their key.
-- Answers one row with n = 0 if they were routed, and one for each task that was claimed.
CREATE FUNCTION runtime.board_put(
  p_route boolean, p_id uuid[], p_version int[], p_org text[], p_type text[], p_correlation text[], p_routes text[], p_body text[],
  p_t_artifact uuid[], p_t_version int[], p_t_correlation text[], p_t_agent text[], p_t_lane text[], p_t_key text[], p_t_task uuid[], p_t_created bigint[], p_t_want boolean[],
  p_d_agent text[], p_d_id uuid[], p_d_task uuid[], p_d_correlation text[], p_d_body text[],
  p_holder text, p_lease_ms bigint
) RETURNS TABLE (n int, seq bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  routed boolean := p_route AND NOT EXISTS (SELECT FROM runtime.board_unrouted);
BEGIN
  IF cardinality(p_id) = 0 THEN RETURN; END IF;
  IF NOT routed THEN
    WITH made AS (
      INSERT INTO runtime.board_artifacts AS a (id, version, seq, org_id, type, correlation_id, body)
      SELECT u.id, u.version, u.seq, u.org, u.type, u.correlation, u.body
      FROM (
        SELECT u.*, nextval('runtime.board_seq') AS seq
        FROM unnest(p_id, p_version, p_org, p_type, p_correlation, p_body) AS u(id, version, org, type, correlation, body)
        OFFSET 0
      ) u ORDER BY u.id, u.version
      RETURNING a.seq, a.id, a.version
    ) INSERT INTO runtime.board_unrouted (seq, id, version) SELECT m.seq, m.id, m.version FROM made m;
    RETURN;
  END IF;
  INSERT INTO runtime.board_artifacts AS a (id, version, seq, org_id, type, correlation_id, routes, body)
  SELECT u.id, u.version, u.seq, u.org, u.type, u.correlation, string_to_array(u.routes, ','), u.body
  FROM (
    SELECT u.*, nextval('runtime.board_seq') AS seq
    FROM unnest(p_id, p_version, p_org, p_type, p_correlation, p_routes, p_body)
      AS u(id, version, org, type, correlation, routes, body)
    OFFSET 0
  ) u ORDER BY u.id, u.version;
  IF cardinality(p_d_id) > 0 THEN
    INSERT INTO runtime.board_dead_letters (agent, id, task_id, correlation_id, body)
    SELECT d.agent, d.id, d.task, d.correlation, d.body
    FROM unnest(p_d_agent, p_d_id, p_d_task, p_d_correlation, p_d_body) AS d(agent, id, task, correlation, body)
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN QUERY SELECT 0, 0::bigint;
  RETURN QUERY SELECT l.n, l.seq FROM runtime.board_line_up(
    p_t_agent, p_t_lane, p_t_key, p_t_task, array_fill(''::text, ARRAY[cardinality(p_t_agent)]),
    p_t_artifact, p_t_version, p_t_correlation, p_t_created, p_t_want, p_holder, p_lease_ms) l;
END $$;

-- Settles what p_holder still has: done and dead leave the queue, a retry waits, and the next of each lane comes forward.
-- Answers their numbers, and who came forward: claimed for p_holder where it wants that (p_want). Whoever lost its claim changes nothing; with p_all, where outputs follow, that fails it all. The caller sorts by agent and lane: no deadlock.
CREATE FUNCTION runtime.board_settle(
  p_holder text, p_seq bigint[], p_attempt int[], p_kind text[], p_delay_ms bigint[], p_agent text[], p_lane text[],
  p_leaves boolean[], p_d_id uuid[], p_d_task uuid[], p_d_correlation text[], p_d_body text[], p_all boolean,
  p_want boolean[], p_lease_ms bigint
) RETURNS TABLE (
  n int, promoted text, claimed boolean, seq bigint, lane text, attempt int, task_id uuid, key text, created_at bigint,
  artifact text, task text
)
LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  settled int[];
BEGIN
  WITH gone AS (
    DELETE FROM runtime.board_queue q
    USING unnest(p_seq, p_attempt, p_kind) WITH ORDINALITY AS s(seq, attempt, kind, n)
    WHERE q.seq = s.seq AND q.claimed_by = p_holder AND q.attempt = s.attempt AND s.kind <> 'retry'
    RETURNING s.n
  ) SELECT array_agg(g.n) INTO settled FROM gone g;
  IF 'retry' = ANY (p_kind) THEN
    -- Leaving a lane is taking its head away: it waits for those who add to the lane, as a deletion does.
    PERFORM FROM unnest(p_seq, p_kind) AS s(seq, kind)
      CROSS JOIN LATERAL (SELECT FROM runtime.board_queue q WHERE q.seq = s.seq FOR UPDATE) q WHERE s.kind = 'retry';
    WITH kept AS (
      UPDATE runtime.board_queue q
      SET claimed_by = NULL, due_at = now() + s.delay * interval '1 ms', lane = CASE WHEN NOT s.leaves THEN q.lane END
      FROM unnest(p_seq, p_attempt, p_kind, p_delay_ms, p_leaves) WITH ORDINALITY AS s(seq, attempt, kind, delay, leaves, n)
      WHERE q.seq = s.seq AND q.claimed_by = p_holder AND q.attempt = s.attempt AND s.kind = 'retry'
      RETURNING s.n
    ) SELECT coalesce(settled, '{}') || coalesce(array_agg(k.n::int), '{}') INTO settled FROM kept k;
  END IF;
  IF p_all AND coalesce(cardinality(settled), 0) < cardinality(p_seq) THEN
    RAISE EXCEPTION 'a claim was lost' USING ERRCODE = 'KB001';
  END IF;
  IF settled IS NULL THEN RETURN; END IF;
  IF 'dead' = ANY (p_kind) THEN
    INSERT INTO runtime.board_dead_letters (agent, id, task_id, correlation_id, body)
    SELECT s.agent, s.id, s.task, s.correlation, s.body
    FROM unnest(p_kind, p_agent, p_d_id, p_d_task, p_d_correlation, p_d_body) WITH ORDINALITY
      AS s(kind, agent, id, task, correlation, body, n)
    WHERE s.kind = 'dead' AND s.n = ANY (settled) ON CONFLICT DO NOTHING;
  END IF;
  RETURN QUERY SELECT s, NULL::text, NULL::boolean, NULL::bigint, NULL::text, NULL::int, NULL::uuid, NULL::text,
    NULL::bigint, NULL::text, NULL::text FROM unnest(settled) AS s;
  RETURN QUERY WITH came AS (
    UPDATE runtime.board_queue q
    SET head = true, claimed_by = CASE WHEN next.want THEN p_holder END,
      attempt = q.attempt + CASE WHEN next.want THEN 1 ELSE 0 END,
      due_at = CASE WHEN next.want THEN now() + p_lease_ms * interval '1 ms' ELSE q.due_at END
    FROM (
      SELECT b.seq, l.want FROM (
        SELECT s.agent COLLATE "C" AS agent, s.lane COLLATE "C" AS lane, bool_or(s.want) AS want
        FROM unnest(p_agent, p_lane, p_leaves, p_want) WITH ORDINALITY AS s(agent, lane, leaves, want, n)
        WHERE s.leaves AND s.lane IS NOT NULL AND s.n = ANY (settled) GROUP BY 1, 2
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
  PERFORM FROM runtime.board_line_up(
    ARRAY(SELECT p_agent[i] FROM unnest(fresh) AS i), ARRAY(SELECT p_lane[i] FROM unnest(fresh) AS i),
    ARRAY(SELECT p_key[i] FROM unnest(fresh) AS i), ARRAY(SELECT p_task[i] FROM unnest(fresh) AS i),
    ARRAY(SELECT p_replay[i] FROM unnest(fresh) AS i), array_fill(NULL::uuid, ARRAY[cardinality(fresh)]),
    array_fill(NULL::int, ARRAY[cardinality(fresh)]), ARRAY(SELECT p_correlation[i] FROM unnest(fresh) AS i),
    ARRAY(SELECT p_created[i] FROM unnest(fresh) AS i), array_fill(false, ARRAY[cardinality(fresh)]), NULL, 0);
  RETURN QUERY SELECT unnest(fresh);
END $$;

-- Routes artifacts that were left to the router, and takes them off its list.
CREATE FUNCTION runtime.board_route(
  p_seq bigint[], p_id uuid[], p_version int[], p_routes text[],
  p_t_artifact uuid[], p_t_version int[], p_t_correlation text[], p_t_agent text[], p_t_lane text[], p_t_key text[], p_t_task uuid[], p_t_created bigint[],
  p_d_agent text[], p_d_id uuid[], p_d_task uuid[], p_d_correlation text[], p_d_body text[]
) RETURNS void
LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
BEGIN
  DELETE FROM runtime.board_unrouted u USING unnest(p_seq) AS s(seq) WHERE u.seq = s.seq;
  UPDATE runtime.board_artifacts a SET routes = string_to_array(u.routes, ',')
  FROM unnest(p_id, p_version, p_routes) AS u(id, version, routes) WHERE a.id = u.id AND a.version = u.version;
  INSERT INTO runtime.board_dead_letters (agent, id, task_id, correlation_id, body)
  SELECT d.agent, d.id, d.task, d.correlation, d.body
  FROM unnest(p_d_agent, p_d_id, p_d_task, p_d_correlation, p_d_body) AS d(agent, id, task, correlation, body)
  ON CONFLICT DO NOTHING;
  PERFORM FROM runtime.board_line_up(
    p_t_agent, p_t_lane, p_t_key, p_t_task, array_fill(''::text, ARRAY[cardinality(p_t_agent)]),
    p_t_artifact, p_t_version, p_t_correlation, p_t_created, array_fill(false, ARRAY[cardinality(p_t_agent)]), NULL, 0);
END $$;

-- The lowest id of version 7 that a day has.
CREATE FUNCTION runtime.board_low_id(p_day date) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex((p_day - date '1970-01-01')::bigint * 86400000), 12, '0') || repeat('0', 20))::uuid
$$;

-- Makes the partitions of a day, if they are not there. What is in the default partition of that day moves over, and
-- whoever makes them waits for no one: a busy table is tried again later.
CREATE FUNCTION runtime.board_make_partitions(p_day date) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
  suffix text := to_char(p_day, 'YYYYMMDD');
  low uuid := runtime.board_low_id(p_day);
  high uuid := runtime.board_low_id(p_day + 1);
  parent text;
  key text;
  made boolean := false;
BEGIN
  FOR parent, key IN VALUES ('board_artifacts', 'id'), ('board_tasks', 'task_id') LOOP
    CONTINUE WHEN to_regclass(format('runtime.%I', parent || '_' || suffix)) IS NOT NULL;
    -- One at a time. Waiting for a table, unlike for an advisory lock, makes this process see what others made meanwhile.
    EXECUTE format('LOCK TABLE ONLY runtime.%I IN SHARE UPDATE EXCLUSIVE MODE', parent);
    CONTINUE WHEN to_regclass(format('runtime.%I', parent || '_' || suffix)) IS NOT NULL;
    EXECUTE format('CREATE TABLE runtime.%I (LIKE runtime.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', parent || '_' || suffix, parent);
    EXECUTE format('LOCK TABLE runtime.%I IN SHARE ROW EXCLUSIVE MODE', parent || '_other');
    EXECUTE format(
      'WITH moved AS (DELETE FROM runtime.%I WHERE %I >= $1 AND %I < $2 RETURNING *) INSERT INTO runtime.%I SELECT * FROM moved',
      parent || '_other', key, key, parent || '_' || suffix) USING low, high;
    EXECUTE format('ALTER TABLE runtime.%I ATTACH PARTITION runtime.%I FOR VALUES FROM (%L) TO (%L)',
      parent, parent || '_' || suffix, low, high);
    made := true;
  END LOOP;
  RETURN made;
END $$;
