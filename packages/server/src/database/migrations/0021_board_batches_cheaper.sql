-- An agent with a batch costs less for each artifact: ids come as one array of bytes and are cut here, what is read of a batch
-- is put in order by who asked for it, and what came is taken with one call. Servers of the version before go on with the
-- functions that they know.

-- Identifiers hardly become smaller, and to try that took as long as to read them from text.
ALTER TABLE runtime.board_tasks ALTER COLUMN artifact_ids SET STORAGE EXTERNAL;
-- Up to three hundred artifacts fit into a page, and nothing of them is put elsewhere.
ALTER TABLE runtime.board_arrivals SET (toast_tuple_target = 8160);

-- Makes the partitions of a day, if they are not there. What is in the default partition of that day moves over, and
-- whoever makes them waits for no one: a busy table is tried again later.
CREATE OR REPLACE FUNCTION runtime.board_make_partitions(p_day date) RETURNS boolean
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
    EXECUTE format('CREATE TABLE runtime.%I (LIKE runtime.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)',
      parent || '_' || suffix, parent);
    PERFORM runtime.board_spare(format('runtime.%I', parent || '_' || suffix)::regclass, true);
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

-- The whole task as JSON; null if an artifact of it is gone. No versions: each is the first.
CREATE OR REPLACE FUNCTION runtime.board_task_body(k runtime.board_tasks) RETURNS text
-- One search for all of them, then hashes: a planner that expects ten would compare each with every other.
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off AS $$
  SELECT CASE WHEN k.artifact_ids IS NULL THEN k.body ELSE (
    SELECT CASE WHEN count(*) = cardinality(k.artifact_ids)
      THEN '{"artifacts":[' || string_agg(a.body, ',' ORDER BY u.n) || '],' || substr(k.body, 2) END
    FROM unnest(k.artifact_ids, k.artifact_versions) WITH ORDINALITY AS u(id, version, n)
    JOIN (
      SELECT a.id, a.version, a.body FROM runtime.board_artifacts a WHERE a.id = ANY (k.artifact_ids) OFFSET 0
    ) a ON a.id = u.id AND a.version = coalesce(u.version, 1)
  ) END
$$;

-- Takes what came for the batches of an agent: the oldest arrivals, with not many more than 10,000 artifacts, and of the open
-- batches those that arrivals belong to, and those that came until p_overdue. Nothing of it if somebody else is at it. The
-- last row says when the oldest came of those that wait on, and whether there are tasks that nobody has: who tells that there is
-- something to do does not say what.
CREATE FUNCTION runtime.board_take_arrivals(p_agent text, p_overdue bigint) RETURNS TABLE (
  oldest bigint, ready boolean, seq bigint, org text, key text, hash text, ids text, versions text, sizes text,
  correlations text[], arrived bigint
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF (EXISTS (SELECT FROM runtime.board_arrivals r WHERE r.agent = p_agent)
      OR EXISTS (SELECT FROM runtime.board_batches b WHERE b.agent = p_agent AND b.arrived_at <= p_overdue))
    -- Any constant will do, as long as every process uses the same.
    AND pg_try_advisory_xact_lock(7240116, hashtext(p_agent)) THEN
    -- By another statement: it sees what was done by whoever had the lock before. Nobody else changes these rows, and so they
    -- stay where they are.
    RETURN QUERY WITH fresh AS (
      DELETE FROM runtime.board_arrivals r WHERE r.ctid = ANY (ARRAY(
        SELECT o.ctid FROM (
          SELECT o.ctid, sum(o.members) OVER (ORDER BY o.seq) - o.members AS before FROM (
            SELECT o.ctid, o.seq, o.members FROM runtime.board_arrivals o WHERE o.agent = p_agent ORDER BY o.seq LIMIT 500
          ) o
        ) o WHERE o.before < 10000
      ))
      RETURNING r.seq, r.org_id, r.key, encode(sha256(convert_to(r.key, 'UTF8')), 'hex') COLLATE "C" AS key_hash, r.ids,
        r.versions, r.sizes, r.correlations, r.arrived_at
    ), open AS (
      DELETE FROM runtime.board_batches b WHERE b.ctid = ANY (ARRAY(
        SELECT o.ctid FROM (SELECT DISTINCT f.org_id, f.key_hash FROM fresh f) f
        CROSS JOIN LATERAL (
          SELECT o.ctid FROM runtime.board_batches o
          WHERE o.agent = p_agent AND o.org_id = f.org_id AND o.key_hash = f.key_hash OFFSET 0
        ) o
        UNION ALL
        (SELECT o.ctid FROM runtime.board_batches o WHERE o.agent = p_agent AND o.arrived_at <= p_overdue
         ORDER BY o.arrived_at LIMIT 500)
      ))
      RETURNING NULL::bigint AS seq, b.org_id, b.key, b.key_hash, b.ids, b.versions, b.sizes, b.correlations, b.arrived_at
    )
    SELECT NULL::bigint, NULL::boolean, t.seq, t.org_id, t.key, t.key_hash, array_to_string(t.ids, ','),
      CASE WHEN 1 <> ANY (t.versions) THEN array_to_string(t.versions, ',') END, array_to_string(t.sizes, ','), t.correlations,
      t.arrived_at
    FROM (SELECT * FROM open UNION ALL SELECT * FROM fresh) t ORDER BY t.seq NULLS FIRST;
  END IF;
  SELECT min(b.arrived_at) INTO oldest FROM runtime.board_batches b WHERE b.agent = p_agent;
  ready := EXISTS (
    SELECT FROM runtime.board_queue q
    WHERE q.agent = p_agent AND q.head AND q.due_at <= now() AND (q.held_until IS NULL OR q.held_until <= now())
  );
  RETURN NEXT;
END $$;

-- Makes tasks of batches, as before: p_ids and p_versions are those of all of them, one after the other, p_count how many
-- each has. Null for the versions is 1.
CREATE FUNCTION runtime.board_form(
  p_agent text, p_lane text[], p_key text[], p_task uuid[], p_correlation text[], p_created bigint, p_body text[],
  p_count int[], p_ids uuid[], p_versions int[],
  p_s_key text[], p_s_task uuid[], p_s_id uuid[], p_s_version int[], p_s_correlation text[], p_s_created bigint[],
  p_s_lane text[]
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  base bigint := nextval('runtime.board_seq');
  batches int := coalesce(cardinality(p_task), 0);
  singles int := coalesce(cardinality(p_s_task), 0);
  lanes text[];
BEGIN
  INSERT INTO runtime.board_tasks (task_id, agent, replay_id, correlation_id, body, artifact_ids, artifact_versions)
  SELECT t.task, p_agent, '', t.correlation, t.body, p_ids[t.until - t.count + 1:t.until],
    p_versions[t.until - t.count + 1:t.until]
  FROM (
    SELECT t.*, sum(t.count) OVER (ORDER BY t.n)::int AS until
    FROM unnest(p_task, p_correlation, p_body, p_count) WITH ORDINALITY AS t(task, correlation, body, count, n)
  ) t;
  IF p_lane IS NOT NULL OR p_s_lane IS NOT NULL THEN
    lanes := coalesce(p_lane, array_fill(NULL::text, ARRAY[batches]))
      || coalesce(p_s_lane, array_fill(NULL::text, ARRAY[singles]));
  END IF;
  PERFORM FROM runtime.board_line_up(
    ARRAY(SELECT base + i FROM generate_series(1, batches + singles) AS i), array_fill(p_agent, ARRAY[batches + singles]),
    lanes, p_key || p_s_key, p_task || p_s_task, NULL, array_fill(NULL::uuid, ARRAY[batches]) || p_s_id,
    array_fill(NULL::int, ARRAY[batches]) || p_s_version, p_correlation || p_s_correlation,
    array_fill(p_created, ARRAY[batches]) || p_s_created, NULL, NULL, 0);
END $$;

-- Claims up to p_most tasks of an agent for p_holder, the oldest first: whole bundles, each in a row with the bodies of its
-- artifacts as JSON, and tasks with rows of their own; a batch has the bodies of its artifacts, too. Where those are not all
-- there, or not in order, it has their ids, and their versions if one is not the first: other versions may come as well. A
-- bundle that is too large for whoever comes, or whose holder was lost, is undone. Answers a row with `more` if there are
-- bundles that did not fit. Tasks are looked for from p_from on (milliseconds): before that are those that are being worked on,
-- and what is left of those that were. Only heads of lanes are in the index; those that somebody has are passed over. They are
-- locked, and so where they were: no second search.
CREATE FUNCTION runtime.board_claim_tasks(p_agent text, p_most int, p_holder text, p_lease_ms bigint, p_from float8)
RETURNS TABLE (
  more boolean, bundle bigint, ats text, ids text, own_keys text, keys json, bodies text,
  seq bigint, lane text, attempt int, task_id uuid, key text, created_at bigint, due float8, artifact text, task text,
  versions text
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
  -- Those that are about more than an artifact.
  whole runtime.board_queue[];
BEGIN
  -- It does not wait for the disk. What a crash of the database takes back is a claim, as if its lease had ended: whatever
  -- is settled is on disk with every claim before it, since the log is written in order.
  PERFORM set_config('synchronous_commit', 'off', true);
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
    SELECT NULL::boolean, m.seq, array_to_string(m.ats, ','),
      CASE WHEN a.ids IS DISTINCT FROM m.ids THEN array_to_string(m.ids, ',') END, encode(m.own_keys, 'hex'), to_json(m.keys),
      a.bodies, NULL::bigint, NULL::text, NULL::int, NULL::uuid, NULL::text, m.created_at, date_part('epoch', m.due_at) * 1000,
      NULL::text, NULL::text, NULL::text
    FROM mine m
    CROSS JOIN LATERAL (
      SELECT array_agg(a.id) AS ids, '[' || string_agg(a.body, ',') || ']' AS bodies FROM runtime.board_artifacts a
      WHERE a.id = ANY (m.ids) AND a.version = 1
    ) a;
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
  SELECT array_agg(t.task) FILTER (WHERE (t.task).artifact_id IS NOT NULL),
    array_agg(t.task) FILTER (WHERE (t.task).artifact_id IS NULL) INTO claimed, whole FROM taken t;
  IF claimed IS NOT NULL THEN
    RETURN QUERY
    SELECT NULL::boolean, NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::json, NULL::text,
      t.seq, t.lane, t.attempt, t.task_id, t.key, t.created_at, date_part('epoch', t.due_at) * 1000, (
        SELECT a.body FROM runtime.board_artifacts a WHERE a.id = t.artifact_id AND a.version = t.artifact_version
      ), NULL::text, NULL::text
    FROM unnest(claimed) AS t;
  END IF;
  IF whole IS NULL THEN RETURN; END IF;
  RETURN QUERY
  SELECT NULL::boolean, NULL::bigint, NULL::text,
    CASE WHEN a.ids IS DISTINCT FROM k.artifact_ids OR k.artifact_versions IS NOT NULL
      THEN array_to_string(k.artifact_ids, ',') END,
    NULL::text, NULL::json, a.bodies, t.seq, t.lane, t.attempt, t.task_id, t.key, t.created_at,
    date_part('epoch', t.due_at) * 1000, NULL::text, k.body, array_to_string(k.artifact_versions, ',')
  FROM unnest(whole) AS t
  LEFT JOIN LATERAL (
    SELECT k.body, k.artifact_ids, k.artifact_versions FROM runtime.board_tasks k
    WHERE k.task_id = t.task_id AND k.agent = t.agent AND k.replay_id = t.replay_id OFFSET 0
  ) k ON true
  CROSS JOIN LATERAL (
    SELECT array_agg(a.id) AS ids, '[' || string_agg(a.body, ',') || ']' AS bodies FROM runtime.board_artifacts a
    WHERE a.id = ANY (k.artifact_ids) AND a.version = ANY (coalesce(k.artifact_versions, '{1}'))
  ) a;
END $$;
