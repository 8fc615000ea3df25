-- Batches without a task for each artifact: what is published for an agent that has a batch is put down by the commit that
-- publishes it, many in a row, and becomes one task when there is enough of it.

-- What came for a batch and was not looked at yet. Whoever publishes only adds rows: it waits for nobody, and nobody for it.
CREATE TABLE runtime.board_arrivals (
  agent text COLLATE "C" NOT NULL,
  seq bigint NOT NULL DEFAULT nextval('runtime.board_seq'),
  org_id text COLLATE "C" NOT NULL,
  -- Of the batch.
  key text NOT NULL,
  members integer NOT NULL,
  ids uuid[] NOT NULL,
  versions integer[] NOT NULL,
  -- The bytes of each artifact.
  sizes integer[] NOT NULL,
  -- Null if none has one.
  correlations text[] COLLATE "C",
  -- Milliseconds.
  arrived_at bigint NOT NULL,
  PRIMARY KEY (agent, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX board_arrivals_correlation ON runtime.board_arrivals USING gin (correlations) WHERE correlations IS NOT NULL;

-- What was looked at and is not enough yet: one row for each batch. Only who has the agent's lock changes them.
CREATE TABLE runtime.board_batches (
  agent text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  -- A key may be too long for an index.
  key_hash text COLLATE "C" NOT NULL,
  key text NOT NULL,
  ids uuid[] NOT NULL,
  versions integer[] NOT NULL,
  sizes integer[] NOT NULL,
  correlations text[] COLLATE "C",
  -- When the first one came, in milliseconds.
  arrived_at bigint NOT NULL,
  PRIMARY KEY (agent, org_id, key_hash)
);
CREATE INDEX board_batches_age ON runtime.board_batches (agent, arrived_at);
CREATE INDEX board_batches_correlation ON runtime.board_batches USING gin (correlations) WHERE correlations IS NOT NULL;

-- Identifiers hardly become smaller.
ALTER TABLE runtime.board_arrivals ALTER COLUMN ids SET STORAGE EXTERNAL;
ALTER TABLE runtime.board_batches ALTER COLUMN ids SET STORAGE EXTERNAL;

-- Of a batch: the body has all but the artifacts, which are where they are.
ALTER TABLE runtime.board_tasks ADD COLUMN artifact_ids uuid[], ADD COLUMN artifact_versions integer[];

-- The whole task as JSON; null if an artifact of it is gone.
CREATE FUNCTION runtime.board_task_body(k runtime.board_tasks) RETURNS text
-- One search for all of them, then hashes: a planner that expects ten would compare each with every other.
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
  SELECT CASE WHEN k.artifact_ids IS NULL THEN k.body ELSE (
    SELECT CASE WHEN count(*) = cardinality(k.artifact_ids)
      THEN '{"artifacts":[' || string_agg(a.body, ',' ORDER BY u.n) || '],' || substr(k.body, 2) END
    FROM unnest(k.artifact_ids, k.artifact_versions) WITH ORDINALITY AS u(id, version, n)
    JOIN (
      SELECT a.id, a.version, a.body FROM runtime.board_artifacts a WHERE a.id = ANY (k.artifact_ids) OFFSET 0
    ) a ON a.id = u.id AND a.version = u.version
  ) END
$$;

-- The artifacts of batches that are not settled, and of those that are not complete: they are needed.
CREATE FUNCTION runtime.board_gathered_ids() RETURNS SETOF uuid
LANGUAGE sql STABLE AS $$
  SELECT unnest(r.ids) FROM runtime.board_arrivals r
  UNION ALL SELECT unnest(b.ids) FROM runtime.board_batches b
  UNION ALL SELECT unnest(k.artifact_ids) FROM runtime.board_queue q
  CROSS JOIN LATERAL (
    SELECT k.artifact_ids FROM runtime.board_tasks k
    WHERE k.task_id = q.task_id AND k.agent = q.agent AND k.replay_id = q.replay_id OFFSET 0
  ) k WHERE q.artifact_id IS NULL
$$;

-- Makes tasks of batches; p_ids and p_versions are texts of arrays. What has to go its own way becomes a task of its own (p_s_…),
-- as if it had been routed to an agent without a batch.
CREATE FUNCTION runtime.board_form(
  p_agent text, p_lane text[], p_key text[], p_task uuid[], p_correlation text[], p_created bigint, p_body text[],
  p_ids text[], p_versions text[],
  p_s_key text[], p_s_task uuid[], p_s_id uuid[], p_s_version int[], p_s_correlation text[], p_s_created bigint[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  base bigint := nextval('runtime.board_seq');
  batches int := coalesce(cardinality(p_task), 0);
  singles int := coalesce(cardinality(p_s_task), 0);
BEGIN
  IF batches > 0 THEN
    INSERT INTO runtime.board_tasks (task_id, agent, replay_id, correlation_id, body, artifact_ids, artifact_versions)
    SELECT t.task, p_agent, '', t.correlation, t.body, t.ids::uuid[], t.versions::int[]
    FROM unnest(p_task, p_correlation, p_body, p_ids, p_versions) AS t(task, correlation, body, ids, versions);
    PERFORM FROM runtime.board_line_up(
      ARRAY(SELECT base + i FROM generate_series(1, batches) AS i), array_fill(p_agent, ARRAY[batches]), p_lane, p_key, p_task,
      NULL, array_fill(NULL::uuid, ARRAY[batches]), array_fill(NULL::int, ARRAY[batches]), p_correlation,
      array_fill(p_created, ARRAY[batches]), NULL, NULL, 0);
  END IF;
  IF singles > 0 THEN
    PERFORM FROM runtime.board_line_up(
      ARRAY(SELECT base + batches + i FROM generate_series(1, singles) AS i), array_fill(p_agent, ARRAY[singles]), NULL,
      p_s_key, p_s_task, NULL, p_s_id, p_s_version, p_s_correlation, p_s_created, NULL, NULL, 0);
  END IF;
END $$;

-- Settles what p_holder still has: done and dead leave the queue, a retry waits, and the next of each lane comes forward.
-- Answers the numbers of those that it has not any more, and who came forward: claimed for p_holder where it wants that
-- (p_want). Whoever lost its claim changes nothing; with p_all, where outputs follow, that fails it all. p_l_agent and
-- p_l_lane are the lanes of the outputs' tasks. The caller sorts by agent and lane: no deadlock. Null for the attempts is
-- 1, for the kinds done, for p_leaves true, for p_want false.
CREATE OR REPLACE FUNCTION runtime.board_settle(
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
    SELECT runtime.board_task_body(k) AS body FROM runtime.board_tasks k
    WHERE c.claimed_by IS NOT NULL AND c.artifact_id IS NULL
      AND k.task_id = c.task_id AND k.agent = c.agent AND k.replay_id = c.replay_id OFFSET 0
  ) k ON true;
END $$;
