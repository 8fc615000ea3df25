-- Shared by all planes: the event log, leases, revoked tokens, the audit log, stored bytes, and durable streams.

-- The position of the newest event. Appends hold this row's lock until they commit, so positions are dense and become
-- visible in commit order: a reader at position n has seen everything up to n.
CREATE TABLE runtime.event_log_head (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  position bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO runtime.event_log_head (position) VALUES (0);

-- One row per event stream, with the sequence of its newest event. The first actor of a stream owns it. Every org has ids of
-- its own.
CREATE TABLE runtime.event_streams (
  org_id text NOT NULL,
  kind text NOT NULL,
  stream_id text NOT NULL,
  seq bigint NOT NULL,
  owner text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org_id, kind, stream_id)
) WITH (fillfactor = 70);

-- Every event, in the one order that projections follow.
CREATE TABLE runtime.events (
  position bigint PRIMARY KEY,
  kind text NOT NULL,
  stream_id text NOT NULL,
  seq bigint NOT NULL,
  event_id text NOT NULL,
  type text NOT NULL,
  data json NOT NULL,
  org_id text NOT NULL,
  owner text NOT NULL,
  actor text NOT NULL,
  -- W3C traceparent of the request.
  trace text,
  inserted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- Finds an event by its id and rejects duplicates. It also lists the events of a stream: a second index, by seq, would slow
-- every append down for reads that are rare.
CREATE UNIQUE INDEX events_stream_event_id ON runtime.events (org_id, kind, stream_id, event_id) INCLUDE (seq, position);

-- The arguments of append_events and append_in_order: requests, each for a different stream, and the events of all of them.
CREATE TYPE runtime.append_request AS (
  kind text,
  stream_id text,
  -- The sequence that the stream must be at; null appends wherever it is.
  expected bigint,
  org_id text,
  actor text,
  trace text,
  -- The number of its events.
  events integer,
  -- Whether a stream that another actor owns refuses it.
  owner_only boolean
);
CREATE TYPE runtime.append_event AS (
  -- The request's index, from 1, and the event's index within the request, from 1.
  request integer,
  nth integer,
  event_id text,
  type text,
  data text
);

-- Elects the one process that does a job. A lease saves effort; it is never what makes a write safe.
CREATE TABLE runtime.leases (
  name text PRIMARY KEY,
  holder text NOT NULL,
  expires_at timestamptz NOT NULL
);

-- Revoked tokens: one by its jti, all of a subject, or all of an org that were issued until revoked_at. An empty text stands
-- for any.
CREATE TABLE runtime.revocations (
  org_id text NOT NULL,
  subject text NOT NULL,
  jti text NOT NULL,
  revoked_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  -- By the database's clock, which all servers share: they read what is new.
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (org_id, subject, jti)
);
CREATE INDEX revocations_changed_at ON runtime.revocations (changed_at);

-- Who did what to which resource, from where, with which outcome. An entry is written before the work, gets its outcome
-- once, and is removed by age.
CREATE TABLE runtime.audit_log (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  org_id text NOT NULL,
  subject text NOT NULL,
  action text NOT NULL,
  resource text NOT NULL,
  address text NOT NULL,
  -- `ok`, or the code of the error. Null until the work has ended, and for good if the server died before.
  outcome text
);
CREATE INDEX audit_log_org ON runtime.audit_log (org_id, id);
CREATE INDEX audit_log_age ON runtime.audit_log USING brin (at);

-- How much each org stores, by plane: what a recount found, and what requests have added since.
CREATE TABLE runtime.org_usage (
  org_id text COLLATE "C" NOT NULL,
  plane text COLLATE "C" NOT NULL,
  bytes bigint NOT NULL,
  -- The part of it that was added since the last recount began.
  since_recount bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (org_id, plane)
) WITH (fillfactor = 50);

-- When the next recount is due. The server that moves it does it.
CREATE TABLE runtime.org_usage_recount (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  next_at timestamptz NOT NULL
);

-- Durable Streams: append-only bytes at a path.
CREATE TABLE runtime.durable_streams (
  -- Part of every offset: a stream created again at the same path never accepts an old offset.
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  org_id text COLLATE "C" NOT NULL,
  path text COLLATE "C" NOT NULL,
  -- The subject that created it.
  owner text NOT NULL,
  content_type text NOT NULL,
  -- As requested, to recognise a repeated request; dies_at is the resulting time.
  ttl_s bigint,
  expires_at text,
  dies_at timestamptz,
  -- Length in bytes.
  tail bigint NOT NULL DEFAULT 0,
  -- The time of the newest append.
  written_at bigint NOT NULL DEFAULT 0,
  -- The newest Stream-Seq. The protocol compares it byte by byte.
  seq text COLLATE "C",
  closed boolean NOT NULL DEFAULT false,
  -- The producer request that closed the stream; it may be repeated.
  closed_by text,
  closed_epoch bigint,
  closed_seq bigint,
  -- Deleted while it had forks: its path stays taken until they are deleted.
  gone boolean NOT NULL DEFAULT false,
  -- A fork has a copy of what it inherits. Its source may be deleted, so there is no foreign key.
  forked_from bigint,
  fork_request text,
  -- [[stream, position], …]: whose offsets are valid here, up to where.
  inherited jsonb NOT NULL DEFAULT '[]',
  UNIQUE (org_id, path)
);
CREATE INDEX durable_streams_forks ON runtime.durable_streams (org_id, forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX durable_streams_gone ON runtime.durable_streams (id) WHERE gone;
CREATE INDEX durable_streams_dies_at ON runtime.durable_streams (dies_at) WHERE dies_at IS NOT NULL;

CREATE TABLE runtime.durable_stream_chunks (
  stream_id bigint NOT NULL REFERENCES runtime.durable_streams ON DELETE CASCADE,
  -- The chunk's end, in bytes from the start of the stream.
  position bigint NOT NULL,
  data bytea NOT NULL,
  -- The time of the append, in microseconds. Part of every offset: after a restore another append may end at this position.
  written_at bigint NOT NULL,
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
