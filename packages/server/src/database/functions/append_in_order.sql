-- The fast path of append_events, for the usual case: no request is refused and no event is known. It reads nothing before
-- it writes; the upsert and the unique index find every other case. Then all of it is rolled back, and append_events
-- decides request by request.
CREATE FUNCTION runtime.append_in_order(p_requests runtime.append_request[], p_events runtime.append_event[])
RETURNS TABLE (request int, outcome text, seq bigint)
-- Planning takes longer than running it.
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  head bigint;
  ends bigint[];
BEGIN
  SELECT position INTO head FROM runtime.event_log_head FOR UPDATE;
  BEGIN
    WITH requests AS MATERIALIZED (
      SELECT * FROM unnest(p_requests)
        WITH ORDINALITY AS r(kind, stream_id, expected, org_id, actor, trace, events, owner_only, n)
    ), streams AS (
      INSERT INTO runtime.event_streams AS s (org_id, kind, stream_id, seq, owner)
      SELECT r.org_id, r.kind, r.stream_id, r.events, r.actor FROM requests r
      ON CONFLICT (org_id, kind, stream_id) DO UPDATE SET seq = s.seq + excluded.seq
      RETURNING s.org_id, s.kind, s.stream_id, s.seq, s.owner
    ), placed AS MATERIALIZED (
      SELECT r.*, s.seq, s.owner FROM requests r JOIN streams s ON s.stream_id = r.stream_id AND s.kind = r.kind AND s.org_id = r.org_id
      WHERE (r.expected IS NULL OR s.seq = r.expected + r.events) AND (NOT r.owner_only OR s.owner = r.actor)
    ), written AS (
      INSERT INTO runtime.events (position, kind, stream_id, seq, event_id, type, data, org_id, owner, actor, trace)
      SELECT head + e.n, p.kind, p.stream_id, p.seq - p.events + e.nth, e.event_id, e.type, e.data::json,
             p.org_id, p.owner, p.actor, p.trace
      FROM unnest(p_events) WITH ORDINALITY AS e(request, nth, event_id, type, data, n)
      JOIN placed p ON p.n = e.request
    ), moved AS (
      UPDATE runtime.event_log_head SET position = head + cardinality(p_events)
    )
    SELECT array_agg(p.seq ORDER BY p.n) INTO ends FROM placed p;
    IF cardinality(ends) IS DISTINCT FROM cardinality(p_requests) THEN
      RAISE unique_violation;
    END IF;
  EXCEPTION WHEN unique_violation THEN
    RETURN QUERY SELECT * FROM runtime.append_events(p_requests, p_events);
    RETURN;
  END;
  RETURN QUERY SELECT e.n::int, 'appended', e.seq FROM unnest(ends) WITH ORDINALITY AS e(seq, n);
END $$;
