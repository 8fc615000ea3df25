-- When to check a stream for expiry: rounded up to an eighth of the TTL, so that most appends leave the index alone.
CREATE FUNCTION runtime.log_sweep_at(p_expires timestamptz, p_ttl bigint) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
  SELECT to_timestamp((ceil(extract(epoch FROM p_expires) * 8000 / p_ttl) * p_ttl / 8000)::double precision)
$$;
