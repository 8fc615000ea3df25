-- Appends many requests at once and returns an outcome for each: 'appended', 'repeated', 'conflict' (the stream is not at the
-- expected sequence), 'duplicate' (some event ids are known, some are not), 'changed' (an event id is known with another type or
-- other data) or 'foreign' (another actor owns the stream). A refused request does not affect the others.
CREATE FUNCTION runtime.append_events(p_requests runtime.append_request[], p_events runtime.append_event[])
RETURNS TABLE (request int, outcome text, seq bigint)
-- A plan made while the tables were small would scan them for every batch until they are analyzed again.
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  head bigint;
BEGIN
  SELECT position INTO head FROM runtime.event_log_head FOR UPDATE;

  RETURN QUERY
  WITH requests AS MATERIALIZED (
    SELECT r.n::int AS n, r.kind, r.stream_id, r.expected, r.org_id, r.actor, r.trace, r.events,
           r.owner_only, s.seq AS current, s.owner
    FROM unnest(p_requests) WITH ORDINALITY AS r(kind, stream_id, expected, org_id, actor, trace, events, owner_only, n)
    LEFT JOIN runtime.event_streams s ON s.org_id = r.org_id AND s.kind = r.kind AND s.stream_id = r.stream_id
  ), known AS (
    SELECT e.request, count(k.seq) AS known, max(k.seq) AS last_seq,
           bool_or(k.type <> e.type OR k.data::jsonb <> e.data::jsonb) AS changed
    FROM unnest(p_events) AS e
    JOIN requests r ON r.n = e.request
    LEFT JOIN runtime.events k
      ON k.org_id = r.org_id AND k.kind = r.kind AND k.stream_id = r.stream_id AND k.event_id = e.event_id
    GROUP BY e.request
  ), judged AS MATERIALIZED (
    SELECT r.*, CASE
      WHEN r.owner_only AND r.owner <> r.actor THEN 'foreign'
      WHEN k.changed THEN 'changed'
      WHEN k.known = r.events THEN 'repeated'
      WHEN k.known > 0 THEN 'duplicate'
      WHEN r.expected IS NOT NULL AND r.expected <> coalesce(r.current, 0) THEN 'conflict'
      ELSE 'appended' END AS outcome, k.last_seq
    FROM requests r JOIN known k ON k.request = r.n
  ), written AS (
    INSERT INTO runtime.events (position, kind, stream_id, seq, event_id, type, data, org_id, owner, actor, trace)
    SELECT head + row_number() OVER (ORDER BY e.n), j.kind, j.stream_id, coalesce(j.current, 0) + e.nth,
           e.event_id, e.type, e.data::json, j.org_id, coalesce(j.owner, j.actor), j.actor, j.trace
    FROM judged j
    JOIN unnest(p_events) WITH ORDINALITY AS e(request, nth, event_id, type, data, n) ON e.request = j.n
    WHERE j.outcome = 'appended'
    RETURNING 1
  ), moved AS (
    UPDATE runtime.event_log_head SET position = head + (SELECT count(*) FROM written)
    WHERE EXISTS (SELECT FROM written)
  ), streams AS (
    INSERT INTO runtime.event_streams AS s (org_id, kind, stream_id, seq, owner)
    SELECT j.org_id, j.kind, j.stream_id, coalesce(j.current, 0) + j.events, coalesce(j.owner, j.actor)
    FROM judged j WHERE j.outcome = 'appended'
    ON CONFLICT (org_id, kind, stream_id) DO UPDATE SET seq = excluded.seq
  )
  SELECT j.n, j.outcome, CASE j.outcome
    WHEN 'appended' THEN coalesce(j.current, 0) + j.events
    WHEN 'repeated' THEN j.last_seq
    ELSE coalesce(j.current, 0) END
  FROM judged j;
END $$;
