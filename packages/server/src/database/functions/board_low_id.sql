-- The lowest id of version 7 that a day has.
CREATE FUNCTION runtime.board_low_id(p_day date) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex((p_day - date '1970-01-01')::bigint * 86400000), 12, '0') || repeat('0', 20))::uuid
$$;
