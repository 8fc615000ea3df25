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
  keys text[] NOT NULL,
  -- Milliseconds.
  created_at bigint NOT NULL,
  due_at timestamptz NOT NULL,
  claimed_by text COLLATE "C",
  held_until timestamptz,
  PRIMARY KEY (agent, seq)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_cost_delay = 0);
-- It is short-lived, and identifiers hardly become smaller.
ALTER TABLE runtime.board_bundles ALTER COLUMN ids SET STORAGE EXTERNAL, ALTER COLUMN keys SET STORAGE EXTERNAL;

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
    u.id, u.id, 1, u.key, b.created_at
  FROM unnest(b.ats, b.ids, b.keys) AS u(at, id, key) WHERE p_seq IS NULL OR b.seq + u.at = ANY (p_seq);
  SELECT coalesce(array_agg(u.at ORDER BY u.at), '{}'), array_agg(u.id ORDER BY u.at), array_agg(u.key ORDER BY u.at)
  INTO b.ats, b.ids, b.keys FROM unnest(b.ats, b.ids, b.keys) AS u(at, id, key) WHERE p_seq IS NOT NULL AND b.seq + u.at <> ALL (p_seq);
  IF b.ats = '{}' THEN
    DELETE FROM runtime.board_bundles o WHERE o.agent = p_agent AND o.seq = p_bundle;
  ELSE
    UPDATE runtime.board_bundles o SET ats = b.ats, ids = b.ids, keys = b.keys
    WHERE o.agent = p_agent AND o.seq = p_bundle;
  END IF;
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
-- lost, is undone. Answers a row with `more` if there are bundles that did not fit. Tasks are looked for from p_from on (milliseconds): before
-- that are those that are being worked on, and what is left of those that were. Only heads of lanes are in the index; those
-- that somebody has are passed over. They are locked, and so where they were: no second search.
CREATE FUNCTION runtime.board_claim(p_agent text, p_most int, p_holder text, p_lease_ms bigint, p_from float8)
RETURNS TABLE (
  more boolean, bundle bigint, ats text, ids text, keys json, bodies text,
  seq bigint, lane text, attempt int, task_id uuid, key text, created_at bigint, due float8, artifact text, task text
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  b runtime.board_bundles;
  last bigint := -1;
  room int := p_most;
  older int;
  taken bigint[] := '{}';
BEGIN
  WHILE room > 0 LOOP
    SELECT o.* INTO b FROM runtime.board_bundles o
    WHERE o.agent = p_agent AND o.seq > last AND (o.held_until IS NULL OR o.held_until <= now())
    ORDER BY o.seq LIMIT 1 FOR UPDATE SKIP LOCKED;
    EXIT WHEN NOT FOUND;
    last := b.seq;
    IF older IS NULL THEN
      -- Whoever waits for longer comes first, whatever it waits in.
      SELECT count(*) INTO older FROM (
        SELECT FROM runtime.board_queue q
        WHERE q.agent = p_agent AND q.head AND q.due_at < b.due_at AND q.due_at >= to_timestamp(p_from / 1000)
          AND (q.held_until IS NULL OR q.held_until <= now())
        LIMIT p_most
      ) o;
      room := room - older;
      EXIT WHEN room <= 0;
    END IF;
    IF b.claimed_by IS NOT NULL OR taken = '{}' AND cardinality(b.ats) > p_most THEN
      PERFORM runtime.board_unbundle(p_agent, b.seq, NULL);
      p_from := 0;
      EXIT WHEN b.claimed_by IS NULL;
    ELSIF cardinality(b.ats) > room THEN
      more := true;
      RETURN NEXT;
      EXIT;
    ELSE
      room := room - cardinality(b.ats);
      taken := taken || b.seq;
    END IF;
  END LOOP;
  IF taken <> '{}' THEN
    RETURN QUERY WITH mine AS (
      UPDATE runtime.board_bundles o SET claimed_by = p_holder, held_until = now() + p_lease_ms * interval '1 ms'
      WHERE o.agent = p_agent AND o.seq = ANY (taken)
      RETURNING o.seq, o.ats, o.ids, o.keys, o.created_at, o.due_at
    )
    SELECT NULL::boolean, m.seq, array_to_string(m.ats, ','), array_to_string(m.ids, ','), to_json(m.keys), (
      SELECT '[' || string_agg(a.body, ',') || ']' FROM runtime.board_artifacts a WHERE a.id = ANY (m.ids) AND a.version = 1
    ), NULL::bigint, NULL::text, NULL::int, NULL::uuid, NULL::text, m.created_at, date_part('epoch', m.due_at) * 1000,
      NULL::text, NULL::text
    FROM mine m;
  END IF;
  room := room + coalesce(older, 0);
  IF room <= 0 THEN RETURN; END IF;
  RETURN QUERY WITH due AS MATERIALIZED (
    SELECT q.ctid FROM runtime.board_queue q
    WHERE q.agent = p_agent AND q.head AND q.due_at <= now() AND q.due_at >= to_timestamp(p_from / 1000)
      AND (q.held_until IS NULL OR q.held_until <= now())
    ORDER BY q.due_at, q.seq LIMIT room FOR NO KEY UPDATE SKIP LOCKED
  ), taken AS (
    UPDATE runtime.board_queue q
    SET claimed_by = p_holder, attempt = q.attempt + 1, held_until = now() + p_lease_ms * interval '1 ms'
    WHERE q.ctid = ANY (ARRAY(SELECT d.ctid FROM due d))
    RETURNING q.due_at, q.seq, q.lane, q.attempt, q.agent, q.task_id, q.replay_id, q.artifact_id, q.artifact_version, q.key, q.created_at
  )
  SELECT NULL::boolean, NULL::bigint, NULL::text, NULL::text, NULL::json, NULL::text,
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
-- A planner that expects ten would compare each with every other.
LANGUAGE plpgsql SET enable_nestloop = off AS $$
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
    SELECT coalesce(array_agg(u.at ORDER BY u.at), '{}'), array_agg(u.id ORDER BY u.at), array_agg(u.key ORDER BY u.at)
    INTO b.ats, b.ids, b.keys
    FROM unnest(b.ats, b.ids, b.keys) AS u(at, id, key) LEFT JOIN unnest(s.ats) AS d(at) ON d.at = u.at WHERE d.at IS NULL;
    IF b.ats = '{}' THEN
      DELETE FROM runtime.board_bundles o WHERE o.agent = s.agent AND o.seq = s.bundle;
    ELSE
      UPDATE runtime.board_bundles o SET ats = b.ats, ids = b.ids, keys = b.keys
      WHERE o.agent = s.agent AND o.seq = s.bundle;
    END IF;
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
    CROSS JOIN LATERAL (
      SELECT b.seq, b.ids FROM runtime.board_bundles b WHERE b.agent = u.agent AND b.seq <= a.seq ORDER BY b.seq DESC LIMIT 1
    ) b
    WHERE u.id = ANY (b.ids) GROUP BY 1, 2 ORDER BY 1, 2 OFFSET 0
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
