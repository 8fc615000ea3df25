-- Open tasks that nothing orders, many in one row: they are queued, claimed and settled together, and leave it one by one
-- as soon as anything else becomes of them.

-- Each task is the first version of an artifact, has its id and no lane, no replay and no correlation, and nobody has tried
-- it before: else it is in board_queue. Who has the row has all tasks of it, with the first attempt.
CREATE TABLE runtime.board_bundles (
  agent text COLLATE "C" NOT NULL,
  -- That of its first task when it was made.
  seq bigint NOT NULL,
  -- Of the open ones: how far each is from the first. Whoever is settled, or has a row of its own, is not there any more.
  ats integer[] NOT NULL,
  ids uuid[] NOT NULL,
  -- Keys that are hashes of the artifacts' types and ids, 16 bytes each; other keys are in the next column.
  own_keys bytea,
  keys text[],
  -- Milliseconds.
  created_at bigint NOT NULL,
  due_at timestamptz NOT NULL,
  claimed_by text COLLATE "C",
  held_until timestamptz,
  PRIMARY KEY (agent, seq)
) WITH (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_cost_delay = 0);
-- Identifiers hardly become smaller.
ALTER TABLE runtime.board_bundles
  ALTER COLUMN ids SET STORAGE EXTERNAL, ALTER COLUMN own_keys SET STORAGE EXTERNAL, ALTER COLUMN keys SET STORAGE EXTERNAL;

-- Takes tasks out of a bundle that the caller has locked, and has as it is now.
CREATE FUNCTION runtime.board_leave_bundle(b runtime.board_bundles, p_ats int[]) RETURNS void
-- A planner that expects ten would compare each with every other.
LANGUAGE plpgsql SET enable_nestloop = off AS $$
BEGIN
  SELECT array_agg(u.at ORDER BY u.at), array_agg(u.id ORDER BY u.at),
    string_agg(substring(b.own_keys FROM 16 * u.n::int - 15 FOR 16), '' ORDER BY u.at),
    array_agg(u.key ORDER BY u.at) FILTER (WHERE u.key IS NOT NULL)
  INTO b.ats, b.ids, b.own_keys, b.keys
  FROM unnest(b.ats, b.ids, b.keys) WITH ORDINALITY AS u(at, id, key, n)
  LEFT JOIN unnest(p_ats) AS d(at) ON d.at = u.at WHERE d.at IS NULL;
  IF b.ats IS NULL THEN
    DELETE FROM runtime.board_bundles o WHERE o.agent = b.agent AND o.seq = b.seq;
  ELSE
    UPDATE runtime.board_bundles o SET ats = b.ats, ids = b.ids, own_keys = b.own_keys, keys = b.keys
    WHERE o.agent = b.agent AND o.seq = b.seq;
  END IF;
END $$;

-- Gives tasks of a bundle rows of their own, or all of them if p_seq is null: who has the bundle has those.
CREATE FUNCTION runtime.board_unbundle(p_agent text, p_bundle bigint, p_seq bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  b runtime.board_bundles;
BEGIN
  SELECT * INTO b FROM runtime.board_bundles o WHERE o.agent = p_agent AND o.seq = p_bundle FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  INSERT INTO runtime.board_queue (seq, agent, head, due_at, claimed_by, held_until, attempt, task_id, artifact_id,
    artifact_version, key, created_at)
  SELECT b.seq + u.at, b.agent, true, b.due_at, b.claimed_by, b.held_until, CASE WHEN b.claimed_by IS NULL THEN 0 ELSE 1 END,
    u.id, u.id, 1, coalesce(u.key, encode(substring(b.own_keys FROM 16 * u.n::int - 15 FOR 16), 'hex')), b.created_at
  FROM unnest(b.ats, b.ids, b.keys) WITH ORDINALITY AS u(at, id, key, n) WHERE p_seq IS NULL OR b.seq + u.at = ANY (p_seq);
  PERFORM runtime.board_leave_bundle(b, ARRAY(
    SELECT u.at FROM unnest(b.ats) AS u(at) WHERE p_seq IS NULL OR b.seq + u.at = ANY (p_seq)));
END $$;

-- The same for claims of p_holder, each with the bundle that it came in. Those that have left it are passed over.
CREATE FUNCTION runtime.board_unbundle_claims(p_holder text, p_agent text[], p_bundle bigint[], p_seq bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  u record;
BEGIN
  FOR u IN
    SELECT t.agent COLLATE "C" AS agent, t.bundle, array_agg(t.seq) AS seqs
    FROM unnest(p_agent, p_bundle, p_seq) AS t(agent, bundle, seq) GROUP BY 1, 2 ORDER BY 1, 2
  LOOP
    PERFORM FROM runtime.board_bundles b WHERE b.agent = u.agent AND b.seq = u.bundle AND b.claimed_by = p_holder FOR UPDATE;
    IF FOUND THEN PERFORM runtime.board_unbundle(u.agent, u.bundle, u.seqs); END IF;
  END LOOP;
END $$;

-- Claims up to p_most tasks of an agent for p_holder, the oldest first: whole bundles, each in a row with the bodies of its
-- artifacts as JSON, and tasks with rows of their own. A bundle that is too large for whoever comes, or whose holder was
-- lost, is undone. Answers a row with `more` if there are bundles that did not fit. Tasks are looked for from p_from on
-- (milliseconds): before that are those that are being worked on, and what is left of those that were. Only heads of lanes
-- are in the index; those that somebody has are passed over. They are locked, and so where they were: no second search.
CREATE FUNCTION runtime.board_claim(p_agent text, p_most int, p_holder text, p_lease_ms bigint, p_from float8)
RETURNS TABLE (
  more boolean, bundle bigint, ats text, ids text, own_keys text, keys json, bodies text,
  seq bigint, lane text, attempt int, task_id uuid, key text, created_at bigint, due float8, artifact text, task text
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  b runtime.board_bundles;
  last bigint := -1;
  -- What is left for bundles.
  room int;
  taken bigint[] := '{}';
  tasks int := 0;
BEGIN
  LOOP
    SELECT o.* INTO b FROM runtime.board_bundles o
    WHERE o.agent = p_agent AND o.seq > last AND o.due_at <= now() AND (o.held_until IS NULL OR o.held_until <= now())
    ORDER BY o.seq LIMIT 1 FOR UPDATE SKIP LOCKED;
    EXIT WHEN NOT FOUND;
    last := b.seq;
    IF room IS NULL THEN
      -- Whoever waits for longer comes first, whatever it waits in.
      SELECT p_most - count(*) INTO room FROM (
        SELECT FROM runtime.board_queue q
        WHERE q.agent = p_agent AND q.head AND q.due_at < b.due_at AND q.due_at >= to_timestamp(p_from / 1000)
          AND (q.held_until IS NULL OR q.held_until <= now())
        LIMIT p_most
      ) o;
    END IF;
    IF b.claimed_by IS NOT NULL OR tasks = 0 AND cardinality(b.ats) > p_most THEN
      PERFORM runtime.board_unbundle(p_agent, b.seq, NULL);
      room := room - cardinality(b.ats);
      p_from := 0;
    ELSIF cardinality(b.ats) > room THEN
      more := true;
      RETURN NEXT;
      EXIT;
    ELSE
      room := room - cardinality(b.ats);
      tasks := tasks + cardinality(b.ats);
      taken := taken || b.seq;
    END IF;
    EXIT WHEN room <= 0;
  END LOOP;
  IF taken <> '{}' THEN
    RETURN QUERY WITH mine AS (
      UPDATE runtime.board_bundles o SET claimed_by = p_holder, held_until = now() + p_lease_ms * interval '1 ms'
      WHERE o.agent = p_agent AND o.seq = ANY (taken)
      RETURNING o.seq, o.ats, o.ids, o.own_keys, o.keys, o.created_at, o.due_at
    )
    SELECT NULL::boolean, m.seq, array_to_string(m.ats, ','), array_to_string(m.ids, ','), encode(m.own_keys, 'hex'),
      to_json(m.keys), (
      SELECT '[' || string_agg(a.body, ',') || ']' FROM runtime.board_artifacts a WHERE a.id = ANY (m.ids) AND a.version = 1
    ), NULL::bigint, NULL::text, NULL::int, NULL::uuid, NULL::text, m.created_at, date_part('epoch', m.due_at) * 1000,
      NULL::text, NULL::text
    FROM mine m;
  END IF;
  IF tasks >= p_most THEN RETURN; END IF;
  RETURN QUERY WITH due AS MATERIALIZED (
    SELECT q.ctid FROM runtime.board_queue q
    WHERE q.agent = p_agent AND q.head AND q.due_at <= now() AND q.due_at >= to_timestamp(p_from / 1000)
      AND (q.held_until IS NULL OR q.held_until <= now())
    ORDER BY q.due_at, q.seq LIMIT p_most - tasks FOR NO KEY UPDATE SKIP LOCKED
  ), taken AS (
    UPDATE runtime.board_queue q
    SET claimed_by = p_holder, attempt = q.attempt + 1, held_until = now() + p_lease_ms * interval '1 ms'
    WHERE q.ctid = ANY (ARRAY(SELECT d.ctid FROM due d))
    RETURNING q.due_at, q.seq, q.lane, q.attempt, q.agent, q.task_id, q.replay_id, q.artifact_id, q.artifact_version, q.key, q.created_at
  )
  SELECT NULL::boolean, NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::json, NULL::text,
    t.seq, t.lane, t.attempt, t.task_id, t.key, t.created_at, date_part('epoch', t.due_at) * 1000, CASE
      WHEN t.artifact_id IS NOT NULL
      THEN (SELECT a.body FROM runtime.board_artifacts a WHERE a.id = t.artifact_id AND a.version = t.artifact_version)
    END, CASE
      WHEN t.artifact_id IS NULL
      THEN (
        SELECT runtime.board_task_body(k) FROM runtime.board_tasks k
        WHERE k.task_id = t.task_id AND k.agent = t.agent AND k.replay_id = t.replay_id
      )
    END
  FROM taken t;
END $$;

-- Settles tasks of bundles as done; p_ats has for each bundle those of it, in order, as the text of an array. Answers those
-- that have left their bundle; with p_all, where outputs follow, that fails it all. The caller sorts by agent and bundle.
CREATE FUNCTION runtime.board_settle_bundles(p_holder text, p_agent text[], p_bundle bigint[], p_ats text[], p_all boolean)
RETURNS TABLE (seq bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  s record;
  b runtime.board_bundles;
BEGIN
  FOR s IN
    SELECT u.agent, u.bundle, u.ats::int[] AS ats FROM unnest(p_agent, p_bundle, p_ats) AS u(agent, bundle, ats)
  LOOP
    -- Most times it is all of it.
    DELETE FROM runtime.board_bundles o
    WHERE o.agent = s.agent AND o.seq = s.bundle AND o.claimed_by = p_holder AND o.ats = s.ats;
    CONTINUE WHEN FOUND;
    SELECT * INTO b FROM runtime.board_bundles o
    WHERE o.agent = s.agent AND o.seq = s.bundle AND o.claimed_by = p_holder FOR UPDATE;
    IF NOT FOUND OR NOT s.ats <@ b.ats THEN
      IF p_all THEN RAISE EXCEPTION 'a claim was lost' USING ERRCODE = 'KB001'; END IF;
      RETURN QUERY SELECT s.bundle + a.at FROM unnest(s.ats) AS a(at) WHERE a.at <> ALL (coalesce(b.ats, '{}'));
      CONTINUE WHEN b.ats IS NULL;
    END IF;
    PERFORM runtime.board_leave_bundle(b, s.ats);
  END LOOP;
END $$;

-- Later versions of artifacts come whose tasks share a lane with nothing but those of other versions: the task of the
-- first has none yet. It is given one, unless it was settled or waits for another try: then later ones pass it.
CREATE OR REPLACE FUNCTION runtime.board_adopt(p_id uuid[], p_agent text[], p_lane text[]) RETURNS void
LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
  -- Where it is in a bundle, it leaves that first.
  PERFORM runtime.board_unbundle(f.agent, f.bundle, f.seqs) FROM (
    SELECT u.agent, b.seq AS bundle, array_agg(a.seq) AS seqs FROM (
      SELECT DISTINCT u.id, u.agent COLLATE "C" AS agent FROM unnest(p_id, p_agent) AS u(id, agent)
    ) u
    CROSS JOIN LATERAL (
      SELECT a.seq + array_position(a.routes, u.agent) AS seq FROM runtime.board_artifacts a
      WHERE a.id = u.id AND a.version = 1 OFFSET 0
    ) a
    -- One of those of its commit, whose numbers are less than this apart.
    CROSS JOIN LATERAL (
      SELECT b.seq FROM runtime.board_bundles b
      WHERE b.agent = u.agent AND b.seq <= a.seq AND b.seq > a.seq - 1048576 AND u.id = ANY (b.ids) OFFSET 0
    ) b
    GROUP BY 1, 2 ORDER BY 1, 2 OFFSET 0
  ) f;
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
  ) e WHERE q.seq = e.seq AND q.lane IS NULL;
END $$;

-- The artifacts of what is not settled and not in the queue by itself, and of batches that are not complete: they are needed.
CREATE OR REPLACE FUNCTION runtime.board_gathered_ids() RETURNS SETOF uuid
LANGUAGE sql STABLE AS $$
  SELECT unnest(r.ids) FROM runtime.board_arrivals r
  UNION ALL SELECT unnest(b.ids) FROM runtime.board_batches b
  UNION ALL SELECT unnest(o.ids) FROM runtime.board_bundles o
  UNION ALL SELECT unnest(k.artifact_ids) FROM runtime.board_queue q
  CROSS JOIN LATERAL (
    SELECT k.artifact_ids FROM runtime.board_tasks k
    WHERE k.task_id = q.task_id AND k.agent = q.agent AND k.replay_id = q.replay_id OFFSET 0
  ) k WHERE q.artifact_id IS NULL
$$;

-- Puts artifacts on the board with the tasks that they lead to, and the dead letters; an id and version that is there
-- fails it all. They are left to the router while others wait for it: else they would pass earlier ones of their key.
-- p_at and p_t_at count on from the number that is taken: the tasks of an artifact follow it. The caller sorts artifacts
-- by id and version: no deadlock. Null for the versions is 1, for tasks' ids those of their artifacts, and for those:
-- each artifact has one task. One org, type or routes alone are those of all.
-- Answers one row with n = 0 if they were routed, and one for each task that was claimed.
CREATE OR REPLACE FUNCTION runtime.board_put(
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
  same_routes text[] := string_to_array(p_routes[1], ',');
BEGIN
  IF cardinality(p_id) = 0 THEN RETURN; END IF;
  IF cardinality(p_id) + coalesce(cardinality(p_t_at), 0) >= 1048576 THEN
    RAISE EXCEPTION 'too many artifacts and tasks at a time';
  END IF;
  base := nextval('runtime.board_seq');
  INSERT INTO runtime.board_artifacts (id, version, seq, org_id, type, correlation_id, routes, body)
  SELECT u.id, coalesce(u.version, 1), base + u.at, coalesce(u.org, p_org[1]), coalesce(u.type, p_type[1]), u.correlation,
    CASE WHEN NOT routed THEN NULL WHEN u.routes IS NULL THEN same_routes ELSE string_to_array(u.routes, ',') END, u.body
  -- Side by side, and kept nowhere in between.
  FROM (
    SELECT unnest(p_at) AS at, unnest(p_id) AS id, unnest(p_version) AS version, unnest(p_org) AS org,
      unnest(p_type) AS type, unnest(p_correlation) AS correlation, unnest(p_routes) AS routes, unnest(p_body) AS body
  ) u;
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
  IF cardinality(p_t_at) = 0 THEN RETURN; END IF;
  RETURN QUERY SELECT l.n, l.seq FROM runtime.board_line_up(
    ARRAY(SELECT base + t FROM unnest(p_t_at) AS t), p_t_agent, p_t_lane, p_t_key, coalesce(p_t_task, p_t_artifact, p_id), NULL,
    coalesce(p_t_artifact, p_id), coalesce(p_t_version, array_fill(1, ARRAY[cardinality(p_t_at)])), p_t_correlation, p_t_created,
    p_t_want, p_holder, p_lease_ms) l;
END $$;

-- Open tasks and dead letters of agents, of each kind up to p_up_to. Those that run are the first that were due. A task of a
-- bundle is a head; of bundles so many are looked at as have that many tasks, and if there are more, they count as that many.
CREATE OR REPLACE FUNCTION runtime.board_counts(p_agents text[], p_up_to bigint)
RETURNS TABLE (agent text, heads bigint, running bigint, behind bigint, arrived bigint, dead bigint)
-- Along the indexes, and so no further than the limit: a planner that expects few would collect all first, and sort them.
LANGUAGE sql STABLE SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off AS $$
  SELECT u.agent, h.heads + o.heads, h.running + o.running, b.behind, r.arrived, d.dead
  FROM unnest(p_agents) AS u(agent)
  CROSS JOIN LATERAL (
    SELECT count(*) AS heads, count(*) FILTER (WHERE q.held_until > now()) AS running FROM (
      SELECT q.held_until FROM runtime.board_queue q
      WHERE q.agent = u.agent AND q.head ORDER BY q.due_at, q.seq LIMIT p_up_to
    ) q
  ) h
  CROSS JOIN LATERAL (
    SELECT greatest(coalesce(sum(o.tasks), 0), CASE WHEN count(*) > p_up_to / 100 THEN p_up_to END)::bigint AS heads,
      coalesce(sum(o.tasks) FILTER (WHERE o.held_until > now()), 0)::bigint AS running
    FROM (
      SELECT o.held_until, cardinality(o.ats) AS tasks FROM runtime.board_bundles o
      WHERE o.agent = u.agent ORDER BY o.seq LIMIT p_up_to / 100 + 1
    ) o
  ) o
  CROSS JOIN LATERAL (
    SELECT count(*) AS behind FROM (
      SELECT FROM runtime.board_queue q WHERE q.agent = u.agent AND NOT q.head ORDER BY q.lane, q.seq LIMIT p_up_to
    ) q
  ) b
  CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.members), 0)::bigint AS arrived FROM (
      SELECT r.members FROM runtime.board_arrivals r WHERE r.agent = u.agent ORDER BY r.seq LIMIT p_up_to
    ) r
  ) r
  CROSS JOIN LATERAL (
    SELECT count(*) AS dead FROM (
      SELECT FROM runtime.board_dead_letters d WHERE d.agent = u.agent AND d.replay_id IS NULL LIMIT p_up_to
    ) d
  ) d
$$;
