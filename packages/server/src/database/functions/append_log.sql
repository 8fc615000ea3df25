-- Appends many requests at once, each to a different stream, and returns an outcome for each: 'appended', 'fenced', 'gone',
-- or 'again' when the stream was deleted concurrently. A refused request does not affect the others.
CREATE FUNCTION runtime.append_log(
  p_now bigint, p_ttl bigint, p_stream text[], p_epoch text[], p_fence bigint[], p_fresh text[], p_request int[], p_data text[]
) RETURNS TABLE (request int, outcome text, epoch text, floor bigint, seq bigint, "time" bigint)
-- The planner expects ten requests: with nested loops it would compare each of hundreds with every entry, and with plans made
-- while the tables were small it would scan them for every batch.
LANGUAGE plpgsql SET enable_nestloop = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  expires timestamptz := now() + p_ttl * interval '1 ms';
  sweep timestamptz := runtime.log_sweep_at(expires, p_ttl);
BEGIN
  -- Everybody locks rows in the order of their names, new ones first, before changing any: no deadlock.
  INSERT INTO runtime.log_streams (stream, epoch, expires_at, sweep_at)
  SELECT r.stream, r.fresh, expires, sweep
  FROM unnest(p_stream, p_epoch, p_fresh) AS r(stream, epoch, fresh)
  LEFT JOIN LATERAL (SELECT true AS there FROM runtime.log_streams s WHERE s.stream = r.stream OFFSET 0) s ON true
  WHERE r.epoch IS NULL AND s.there IS NULL
  ORDER BY r.stream COLLATE "C"
  ON CONFLICT (stream) DO NOTHING;

  PERFORM FROM runtime.log_streams s WHERE s.stream = ANY (p_stream) ORDER BY s.stream FOR UPDATE;

  RETURN QUERY
  WITH requests AS MATERIALIZED (
    SELECT r.n::int AS n, r.stream, r.fence AS new_fence, r.fresh, s.*, CASE
      WHEN s.epoch IS NULL AND r.epoch IS NULL THEN 'again'
      WHEN s.epoch IS NULL OR r.epoch <> s.epoch OR (s.over AND r.epoch IS NOT NULL) THEN 'gone'
      WHEN r.fence < s.fence AND NOT s.over THEN 'fenced'
      ELSE 'appended' END AS outcome
    FROM unnest(p_stream, p_epoch, p_fence, p_fresh) WITH ORDINALITY AS r(stream, epoch, fence, fresh, n)
    LEFT JOIN LATERAL (
      SELECT s.log_id, s.epoch, s.seq, s.time, s.floor, s.fence, s.expires_at <= now() AS over
      FROM runtime.log_streams s WHERE s.stream = r.stream OFFSET 0
    ) s ON true
  ), incoming AS MATERIALIZED (
    SELECT e.request, e.data, octet_length(e.data) AS bytes, row_number() OVER (PARTITION BY e.request ORDER BY e.n) AS nth
    FROM unnest(p_request, p_data) WITH ORDINALITY AS e(request, data, n)
  ), sizes AS (
    SELECT i.request, count(*) AS entries, sum(i.bytes) AS bytes FROM incoming i GROUP BY i.request
  ), judged AS MATERIALIZED (
    SELECT r.n, r.stream, r.outcome, r.over, r.log_id AS old_id, z.entries, z.bytes,
      CASE WHEN r.over THEN nextval('runtime.log_ids') ELSE r.log_id END AS log_id,
      CASE WHEN r.over THEN r.fresh ELSE r.epoch END AS epoch,
      CASE WHEN r.over THEN 0 ELSE r.floor END AS floor,
      CASE WHEN r.over THEN 0 ELSE r.seq END AS seq,
      CASE WHEN r.over THEN p_now ELSE greatest(p_now, r.time) END AS time,
      CASE WHEN r.over THEN r.new_fence ELSE greatest(r.new_fence, r.fence) END AS fence
    FROM requests r JOIN sizes z ON z.request = r.n
  ), written AS (
    INSERT INTO runtime.log_entries (log_id, seq, time, bytes, data)
    SELECT j.log_id, j.seq + i.nth, j.time, i.bytes, i.data
    FROM judged j JOIN incoming i ON i.request = j.n WHERE j.outcome = 'appended'
  ), leftovers AS (
    INSERT INTO runtime.log_leftovers (log_id) SELECT j.old_id FROM judged j WHERE j.outcome = 'appended' AND j.over
  ), moved AS (
    UPDATE runtime.log_streams s
    SET log_id = j.log_id, epoch = j.epoch, seq = j.seq + j.entries, time = j.time, floor = j.floor, fence = j.fence,
      bytes = j.bytes + CASE WHEN j.over THEN 0 ELSE s.bytes END, ui = CASE WHEN NOT j.over THEN s.ui END,
      expires_at = expires, sweep_at = sweep, updated_at = now()
    FROM judged j WHERE s.stream = ANY (p_stream) AND s.stream = j.stream AND j.outcome = 'appended'
  )
  SELECT j.n, j.outcome, j.epoch, j.floor, j.seq + j.entries, j.time FROM judged j;
END $$;
