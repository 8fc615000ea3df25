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
LANGUAGE plpgsql SET enable_bitmapscan = off SET enable_sort = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
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
