-- One index finds an event by its id within its stream, keeps ids apart, and lists a stream. The sequence needs none of
-- its own: it is counted in the stream's row, under its lock. Without another index to choose the planner cannot go wrong.
CREATE UNIQUE INDEX events_stream_event_id ON runtime.events (kind, stream_id, event_id);
DROP INDEX runtime.events_event_id;
DROP INDEX runtime.events_stream_seq;

-- Appends many requests at once, each to a stream of its own, and answers each: 'appended', 'repeated',
-- 'conflict', 'duplicate' (some event ids are known, some are not) or 'foreign' (another org's stream).
-- One refused request does not touch the others.
CREATE OR REPLACE FUNCTION runtime.append_events(
  p_kind text[], p_stream text[], p_expected bigint[], p_org text[], p_actor text[], p_trace text[],
  p_request int[], p_event_id text[], p_type text[], p_data text[]
) RETURNS TABLE (request int, outcome text, seq bigint)
LANGUAGE plpgsql AS $$
DECLARE
  head bigint;
BEGIN
  SELECT position INTO head FROM runtime.event_log_head FOR UPDATE;

  RETURN QUERY
  WITH requests AS MATERIALIZED (
    SELECT r.n::int AS n, r.kind, r.stream_id, r.expected, r.org_id, r.actor, r.trace,
           s.seq AS current, s.org_id AS stream_org, s.owner
    FROM unnest(p_kind, p_stream, p_expected, p_org, p_actor, p_trace)
         WITH ORDINALITY AS r(kind, stream_id, expected, org_id, actor, trace, n)
    LEFT JOIN runtime.event_streams s ON s.kind = r.kind AND s.stream_id = r.stream_id
  ), incoming AS MATERIALIZED (
    SELECT e.request, e.event_id, e.type, e.data, e.n,
           row_number() OVER (PARTITION BY e.request ORDER BY e.n) AS nth
    FROM unnest(p_request, p_event_id, p_type, p_data) WITH ORDINALITY AS e(request, event_id, type, data, n)
  ), known AS (
    SELECT i.request, count(k.seq) AS known, count(*) AS total, max(k.seq) AS last_seq
    FROM incoming i
    JOIN requests r ON r.n = i.request
    LEFT JOIN runtime.events k ON k.kind = r.kind AND k.stream_id = r.stream_id AND k.event_id = i.event_id
    GROUP BY i.request
  ), judged AS MATERIALIZED (
    SELECT r.*, k.total, CASE
      WHEN r.stream_org <> r.org_id THEN 'foreign'
      WHEN k.known = k.total THEN 'repeated'
      WHEN k.known > 0 THEN 'duplicate'
      WHEN r.expected IS NOT NULL AND r.expected <> coalesce(r.current, 0) THEN 'conflict'
      ELSE 'appended' END AS outcome, k.last_seq
    FROM requests r JOIN known k ON k.request = r.n
  ), written AS (
    INSERT INTO runtime.events (position, kind, stream_id, seq, event_id, type, data, org_id, owner, actor, trace)
    SELECT head + row_number() OVER (ORDER BY i.n), j.kind, j.stream_id, coalesce(j.current, 0) + i.nth,
           i.event_id, i.type, i.data::json, j.org_id, coalesce(j.owner, j.actor), j.actor, j.trace
    FROM judged j JOIN incoming i ON i.request = j.n
    WHERE j.outcome = 'appended'
    RETURNING 1
  ), moved AS (
    UPDATE runtime.event_log_head SET position = head + (SELECT count(*) FROM written)
    WHERE EXISTS (SELECT FROM written)
  ), streams AS (
    INSERT INTO runtime.event_streams AS s (kind, stream_id, seq, org_id, owner)
    SELECT j.kind, j.stream_id, coalesce(j.current, 0) + j.total, j.org_id, coalesce(j.owner, j.actor)
    FROM judged j WHERE j.outcome = 'appended'
    ON CONFLICT (kind, stream_id) DO UPDATE SET seq = excluded.seq
  )
  SELECT j.n, j.outcome, CASE j.outcome
    WHEN 'appended' THEN coalesce(j.current, 0) + j.total
    WHEN 'repeated' THEN j.last_seq
    ELSE coalesce(j.current, 0) END
  FROM judged j;
END $$;

-- What append_events does, for half of its work, as long as nothing is to be refused and no event is known: the streams
-- and the unique index are asked while they are written. Whatever else it meets takes back all of it, and append_events
-- judges each request. p_total is the number of a request's events, p_nth the place of each event among them.
CREATE FUNCTION runtime.append_in_order(
  p_kind text[], p_stream text[], p_expected bigint[], p_org text[], p_actor text[], p_trace text[], p_total int[],
  p_request int[], p_nth int[], p_event_id text[], p_type text[], p_data text[]
) RETURNS TABLE (request int, outcome text, seq bigint)
LANGUAGE plpgsql AS $$
DECLARE
  head bigint;
  ends bigint[];
BEGIN
  SELECT position INTO head FROM runtime.event_log_head FOR UPDATE;
  BEGIN
    WITH requests AS MATERIALIZED (
      SELECT * FROM unnest(p_kind, p_stream, p_expected, p_org, p_actor, p_trace, p_total)
        WITH ORDINALITY AS r(kind, stream_id, expected, org_id, actor, trace, total, n)
    ), streams AS (
      INSERT INTO runtime.event_streams AS s (kind, stream_id, seq, org_id, owner)
      SELECT r.kind, r.stream_id, r.total, r.org_id, r.actor FROM requests r
      ON CONFLICT (kind, stream_id) DO UPDATE SET seq = s.seq + excluded.seq WHERE s.org_id = excluded.org_id
      RETURNING s.kind, s.stream_id, s.seq, s.owner
    ), placed AS MATERIALIZED (
      SELECT r.*, s.seq, s.owner FROM requests r JOIN streams s ON s.stream_id = r.stream_id AND s.kind = r.kind
      WHERE r.expected IS NULL OR s.seq = r.expected + r.total
    ), written AS (
      INSERT INTO runtime.events (position, kind, stream_id, seq, event_id, type, data, org_id, owner, actor, trace)
      SELECT head + e.n, p.kind, p.stream_id, p.seq - p.total + e.nth, e.event_id, e.type, e.data::json,
             p.org_id, p.owner, p.actor, p.trace
      FROM unnest(p_request, p_nth, p_event_id, p_type, p_data)
           WITH ORDINALITY AS e(request, nth, event_id, type, data, n)
      JOIN placed p ON p.n = e.request
    ), moved AS (
      UPDATE runtime.event_log_head SET position = head + cardinality(p_request)
    )
    SELECT array_agg(p.seq ORDER BY p.n) INTO ends FROM placed p;
    IF cardinality(ends) IS DISTINCT FROM cardinality(p_kind) THEN
      RAISE unique_violation;
    END IF;
  EXCEPTION WHEN unique_violation THEN
    RETURN QUERY SELECT * FROM runtime.append_events(p_kind, p_stream, p_expected, p_org, p_actor, p_trace, p_request,
      p_event_id, p_type, p_data);
    RETURN;
  END;
  RETURN QUERY SELECT e.n::int, 'appended', e.seq FROM unnest(ends) WITH ORDINALITY AS e(seq, n);
END $$;
