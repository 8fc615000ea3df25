-- Durable streams: append-only bytes at a path, for whoever speaks that protocol.

CREATE TABLE runtime.durable_streams (
  -- Part of every offset: a stream that is made again at the same path never mistakes an old offset for one of its own.
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  org_id text COLLATE "C" NOT NULL,
  path text COLLATE "C" NOT NULL,
  content_type text NOT NULL,
  -- As they were asked for, to recognise the same request; dies_at is what they come to.
  ttl_s bigint,
  expires_at text,
  dies_at timestamptz,
  -- How many bytes it has.
  tail bigint NOT NULL DEFAULT 0,
  -- The newest Stream-Seq; compared as bytes, as the protocol says.
  seq text COLLATE "C",
  closed boolean NOT NULL DEFAULT false,
  -- The request of a producer that closed it, which may be sent again.
  closed_by text,
  closed_epoch bigint,
  closed_seq bigint,
  UNIQUE (org_id, path)
);
CREATE INDEX durable_streams_dies_at ON runtime.durable_streams (dies_at) WHERE dies_at IS NOT NULL;

CREATE TABLE runtime.durable_stream_chunks (
  stream_id bigint NOT NULL REFERENCES runtime.durable_streams ON DELETE CASCADE,
  -- Where it ends, counted in bytes from the stream's beginning.
  position bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (stream_id, position)
);

CREATE TABLE runtime.durable_stream_producers (
  stream_id bigint NOT NULL REFERENCES runtime.durable_streams ON DELETE CASCADE,
  producer_id text COLLATE "C" NOT NULL,
  epoch bigint NOT NULL,
  seq bigint NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (stream_id, producer_id)
);
CREATE INDEX durable_stream_producers_updated_at ON runtime.durable_stream_producers (updated_at);
