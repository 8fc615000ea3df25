-- Creates a stream unless it exists, and sets its bookmark to its end. Replaces a stream of an older generation; returns no
-- row when the stream has a newer one. Without a generation it opens whatever is there.
CREATE FUNCTION runtime.open_log(p_stream text, p_generation bigint, p_fresh text, p_ttl bigint)
RETURNS TABLE (epoch text, floor bigint, seq bigint, "time" bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  expires timestamptz := now() + p_ttl * interval '1 ms';
  sweep timestamptz := runtime.log_sweep_at(expires, p_ttl);
  log runtime.log_streams;
BEGIN
  -- Most streams exist: no lock.
  RETURN QUERY SELECT s.epoch, s.floor, s.seq, s.time FROM runtime.log_streams s
    WHERE s.stream = p_stream AND s.generation = coalesce(p_generation, s.generation) AND s.expires_at > now()
      AND s.ui IS NOT NULL;
  IF FOUND THEN RETURN; END IF;
  LOOP
    SELECT * INTO log FROM runtime.log_streams s WHERE s.stream = p_stream FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO runtime.log_streams (stream, generation, epoch, expires_at, sweep_at)
      VALUES (p_stream, coalesce(p_generation, 0), p_fresh, expires, sweep)
      ON CONFLICT (stream) DO NOTHING;
  END LOOP;
  IF log.generation > p_generation THEN RETURN; END IF;
  IF log.generation < p_generation OR log.expires_at <= now() THEN
    INSERT INTO runtime.log_leftovers (log_id) VALUES (log.log_id);
    UPDATE runtime.log_streams s
    SET log_id = DEFAULT, generation = coalesce(p_generation, s.generation), epoch = p_fresh, seq = 0, time = 0, floor = 0,
      fence = NULL, bytes = 0, ui = NULL, expires_at = expires, sweep_at = sweep, updated_at = now()
    WHERE s.stream = p_stream;
  END IF;
  RETURN QUERY UPDATE runtime.log_streams s SET ui = coalesce(s.ui, s.seq) WHERE s.stream = p_stream
    RETURNING s.epoch, s.floor, s.seq, s.time;
END $$;
