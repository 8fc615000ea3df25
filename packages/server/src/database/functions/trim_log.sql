-- Deletes those of the oldest p_most entries that exceed a limit, never the last one, and none after p_up_to; returns how many.
CREATE FUNCTION runtime.trim_log(p_stream text, p_since bigint, p_entries bigint, p_bytes bigint, p_most int, p_up_to bigint)
RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  log runtime.log_streams;
  cut bigint;
  gone int;
  freed bigint;
BEGIN
  SELECT * INTO log FROM runtime.log_streams s WHERE s.stream = p_stream AND s.expires_at > now() FOR UPDATE;
  IF NOT FOUND THEN RETURN 0; END IF;
  -- Every limit cuts off a prefix: times never decrease, sequences rise, and the remaining bytes shrink.
  SELECT max(e.seq), count(*), sum(e.bytes) INTO cut, gone, freed
  FROM (
    SELECT o.seq, o.time, o.bytes, log.bytes - sum(o.bytes) OVER (ORDER BY o.seq) + o.bytes AS remaining
    FROM (
      SELECT e.seq, e.time, e.bytes FROM runtime.log_entries e
      WHERE e.log_id = log.log_id AND e.seq > log.floor AND e.seq < log.seq ORDER BY e.seq LIMIT p_most
    ) o
  ) e
  WHERE e.seq <= coalesce(p_up_to, e.seq) AND (e.time < p_since OR e.seq <= log.seq - p_entries OR e.remaining > p_bytes);
  IF gone = 0 THEN RETURN 0; END IF;
  DELETE FROM runtime.log_entries e WHERE e.log_id = log.log_id AND e.seq > log.floor AND e.seq <= cut;
  UPDATE runtime.log_streams s SET floor = cut, bytes = s.bytes - freed WHERE s.stream = p_stream;
  RETURN gone;
END $$;
