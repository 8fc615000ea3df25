-- PostgreSQL 18 crashes, with all of its connections, when a row that a statement locks or changes was changed by another
-- in the meantime, and the same statement looks for something in a partitioned table by values that it comes upon: what
-- chooses the partitions is lost with the second look at the row. So rows are claimed by one statement, and what belongs
-- to them is read by another.

-- Claims up to p_most tasks of an agent for p_holder, the oldest first: whole bundles, each in a row with the bodies of its
-- artifacts as JSON, and tasks with rows of their own. A bundle that is too large for whoever comes, or whose holder was
-- lost, is undone. Answers a row with `more` if there are bundles that did not fit. Tasks are looked for from p_from on
-- (milliseconds): before that are those that are being worked on, and what is left of those that were. Only heads of lanes
-- are in the index; those that somebody has are passed over. They are locked, and so where they were: no second search.
CREATE OR REPLACE FUNCTION runtime.board_claim(p_agent text, p_most int, p_holder text, p_lease_ms bigint, p_from float8)
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
  claimed runtime.board_queue[];
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
  WITH due AS MATERIALIZED (
    SELECT q.ctid FROM runtime.board_queue q
    WHERE q.agent = p_agent AND q.head AND q.due_at <= now() AND q.due_at >= to_timestamp(p_from / 1000)
      AND (q.held_until IS NULL OR q.held_until <= now())
    ORDER BY q.due_at, q.seq LIMIT p_most - tasks FOR NO KEY UPDATE SKIP LOCKED
  ), taken AS (
    UPDATE runtime.board_queue q
    SET claimed_by = p_holder, attempt = q.attempt + 1, held_until = now() + p_lease_ms * interval '1 ms'
    WHERE q.ctid = ANY (ARRAY(SELECT d.ctid FROM due d))
    RETURNING q AS task
  )
  SELECT array_agg(t.task) INTO claimed FROM taken t;
  IF claimed IS NULL THEN RETURN; END IF;
  RETURN QUERY
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
  FROM unnest(claimed) AS t;
END $$;

-- Later versions of artifacts come whose tasks share a lane with nothing but those of other versions: the task of the
-- first has none yet. It is given one, unless it was settled or waits for another try: then later ones pass it.
CREATE OR REPLACE FUNCTION runtime.board_adopt(p_id uuid[], p_agent text[], p_lane text[]) RETURNS void
LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  seqs bigint[];
  lanes text[];
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
  SELECT array_agg(e.seq ORDER BY e.seq), array_agg(e.lane ORDER BY e.seq) INTO seqs, lanes FROM (
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
    OFFSET 0
  ) e;
  UPDATE runtime.board_queue q SET lane = e.lane FROM unnest(seqs, lanes) AS e(seq, lane)
  WHERE q.seq = e.seq AND q.lane IS NULL;
END $$;
