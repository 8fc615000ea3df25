-- The log of the conversation plane: streams of text by name.

-- Which entries are a stream's own. A stream that expired or was deleted leaves its number behind, and its name begins
-- with another one: so nobody who appends ever waits for the removal of what was there before.
CREATE SEQUENCE runtime.log_ids AS bigint;

-- One row per stream, locked by whoever appends: sequences are dense, and visible in the order of commits.
CREATE TABLE runtime.log_streams (
  stream text COLLATE "C" PRIMARY KEY,
  log_id bigint NOT NULL DEFAULT nextval('runtime.log_ids'),
  epoch text NOT NULL,
  seq bigint NOT NULL DEFAULT 0,
  -- The time of the newest entry, in milliseconds.
  time bigint NOT NULL DEFAULT 0,
  -- The sequence before the oldest entry that is kept.
  floor bigint NOT NULL DEFAULT 0,
  fence bigint,
  bytes bigint NOT NULL DEFAULT 0,
  -- The bookmark; null until somebody opens the stream.
  ui bigint,
  -- From here on the stream does not exist, removed or not.
  expires_at timestamptz NOT NULL,
  -- When to look for that. It moves in steps of an eighth of the TTL, so that appends leave the index alone.
  sweep_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 40);
CREATE INDEX log_streams_sweep ON runtime.log_streams (sweep_at);

CREATE TABLE runtime.log_entries (
  log_id bigint NOT NULL,
  seq bigint NOT NULL,
  time bigint NOT NULL,
  bytes integer NOT NULL,
  data text NOT NULL,
  PRIMARY KEY (log_id, seq)
);

-- Numbers of streams that are gone, whose entries may still be there.
CREATE TABLE runtime.log_leftovers (log_id bigint PRIMARY KEY);

CREATE FUNCTION runtime.log_sweep_at(p_expires timestamptz, p_ttl bigint) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
  SELECT to_timestamp((ceil(extract(epoch FROM p_expires) * 8000 / p_ttl) * p_ttl / 8000)::double precision)
$$;

-- Appends many requests at once, each to a stream of its own, and answers each: 'appended', 'fenced', 'gone', or 'again'
-- when a stream was deleted in the same moment. One refused request does not touch the others.
CREATE FUNCTION runtime.append_log(
  p_now bigint, p_ttl bigint, p_stream text[], p_epoch text[], p_fence bigint[], p_fresh text[], p_request int[], p_data text[]
) RETURNS TABLE (request int, outcome text, epoch text, floor bigint, seq bigint, "time" bigint)
-- A planner that expects ten requests would compare each of hundreds with every entry.
LANGUAGE plpgsql SET enable_nestloop = off AS $$
#variable_conflict use_column
DECLARE
  expires timestamptz := now() + p_ttl * interval '1 ms';
  sweep timestamptz := runtime.log_sweep_at(expires, p_ttl);
BEGIN
  -- Everybody takes rows in the order of their names, new ones first, and all of them before any is changed: no deadlock.
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

-- Makes a stream if it is not there, and its bookmark at its end.
CREATE FUNCTION runtime.open_log(p_stream text, p_fresh text, p_ttl bigint)
RETURNS TABLE (epoch text, floor bigint, seq bigint, "time" bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  expires timestamptz := now() + p_ttl * interval '1 ms';
  sweep timestamptz := runtime.log_sweep_at(expires, p_ttl);
  log runtime.log_streams;
BEGIN
  -- The usual case takes no lock.
  RETURN QUERY SELECT s.epoch, s.floor, s.seq, s.time FROM runtime.log_streams s
    WHERE s.stream = p_stream AND s.expires_at > now() AND s.ui IS NOT NULL;
  IF FOUND THEN RETURN; END IF;
  LOOP
    SELECT * INTO log FROM runtime.log_streams s WHERE s.stream = p_stream FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO runtime.log_streams (stream, epoch, expires_at, sweep_at) VALUES (p_stream, p_fresh, expires, sweep)
      ON CONFLICT (stream) DO NOTHING;
  END LOOP;
  IF log.expires_at <= now() THEN
    INSERT INTO runtime.log_leftovers (log_id) VALUES (log.log_id);
    UPDATE runtime.log_streams s
    SET log_id = DEFAULT, epoch = p_fresh, seq = 0, time = 0, floor = 0, fence = NULL, bytes = 0, ui = NULL,
      expires_at = expires, sweep_at = sweep, updated_at = now()
    WHERE s.stream = p_stream;
  END IF;
  RETURN QUERY UPDATE runtime.log_streams s SET ui = coalesce(s.ui, s.seq) WHERE s.stream = p_stream
    RETURNING s.epoch, s.floor, s.seq, s.time;
END $$;

-- Removes of the oldest p_most entries those that are beyond a limit, but never the last; answers how many.
CREATE FUNCTION runtime.trim_log(p_stream text, p_since bigint, p_entries bigint, p_bytes bigint, p_most int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  log runtime.log_streams;
  cut bigint;
  gone int;
  freed bigint;
BEGIN
  SELECT * INTO log FROM runtime.log_streams s WHERE s.stream = p_stream AND s.expires_at > now() FOR UPDATE;
  IF NOT FOUND THEN RETURN 0; END IF;
  -- Each limit takes a beginning of what is kept: times do not fall, sequences rise, what remains shrinks.
  SELECT max(e.seq), count(*), sum(e.bytes) INTO cut, gone, freed
  FROM (
    SELECT o.seq, o.time, o.bytes, log.bytes - sum(o.bytes) OVER (ORDER BY o.seq) + o.bytes AS remaining
    FROM (
      SELECT e.seq, e.time, e.bytes FROM runtime.log_entries e
      WHERE e.log_id = log.log_id AND e.seq > log.floor AND e.seq < log.seq ORDER BY e.seq LIMIT p_most
    ) o
  ) e
  WHERE e.time < p_since OR e.seq <= log.seq - p_entries OR e.remaining > p_bytes;
  IF gone = 0 THEN RETURN 0; END IF;
  DELETE FROM runtime.log_entries e WHERE e.log_id = log.log_id AND e.seq > log.floor AND e.seq <= cut;
  UPDATE runtime.log_streams s SET floor = cut, bytes = s.bytes - freed WHERE s.stream = p_stream;
  RETURN gone;
END $$;
