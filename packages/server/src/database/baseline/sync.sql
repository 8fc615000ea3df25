-- The sync plane: topics, their journal, projections and their rebuilds. create_read_model adds a table per read model.

-- next_watermark is the newest watermark in use. Writers hold the row lock until they commit, so watermarks are dense and
-- become visible in commit order. floor is the newest watermark that retention removed: a cursor below it has a gap.
-- purged_version is the highest version of a removed tombstone: a document that comes back goes on above it.
CREATE TABLE runtime.sync_topic_sequences (
  topic text PRIMARY KEY,
  next_watermark bigint NOT NULL DEFAULT 0,
  floor bigint NOT NULL DEFAULT 0,
  purged_version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- The journal: every update of every topic, until retention removes it.
CREATE TABLE runtime.sync_stream_events (
  topic text NOT NULL,
  watermark bigint NOT NULL,
  doc_key text NOT NULL,
  doc_version bigint NOT NULL,
  op text NOT NULL CHECK (op IN ('upsert', 'delete')),
  -- Canonical JSON. Null on delete, and in pointer mode, where the read model has it.
  payload bytea,
  payload_hash bytea,
  payload_bytes integer NOT NULL,
  org_id text NOT NULL,
  -- Who sees the row: these subjects of the org, or all of it when null; never those in hidden_from.
  audience text[],
  hidden_from text[],
  -- W3C traceparent of the change.
  trace text,
  inserted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX sync_stream_events_watermark ON runtime.sync_stream_events (topic, watermark);
CREATE INDEX sync_stream_events_document ON runtime.sync_stream_events (topic, org_id, doc_key, watermark DESC);
CREATE INDEX sync_stream_events_org ON runtime.sync_stream_events (topic, org_id, watermark) WHERE audience IS NULL;
CREATE INDEX sync_stream_events_age ON runtime.sync_stream_events USING brin (inserted_at);

-- When documents expire. Retention deletes them, with a tombstone; until then they are not listed.
CREATE TABLE runtime.sync_expiries (
  topic text NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  doc_key text COLLATE "C" NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (topic, org_id, doc_key)
);
CREATE INDEX sync_expiries_expires_at ON runtime.sync_expiries (topic, expires_at);

-- One row per named viewer of a journal row, so that a resume reads only what the viewer may see.
CREATE TABLE runtime.sync_stream_viewers (
  topic text NOT NULL,
  org_id text NOT NULL,
  subject text NOT NULL,
  watermark bigint NOT NULL,
  PRIMARY KEY (topic, org_id, subject, watermark)
);
CREATE INDEX sync_stream_viewers_watermark ON runtime.sync_stream_viewers (topic, watermark);

-- Each start of a server, with the heads that it found. A cursor from a start that is not here, or beyond the heads of the
-- next start on another PostgreSQL server, belongs to a future that a restore undid.
CREATE TABLE runtime.sync_starts (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text NOT NULL UNIQUE,
  -- Which PostgreSQL: when its server was started, in seconds, the database's oid, and the file of this table.
  postgres text NOT NULL,
  heads jsonb NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now()
);

-- The newest start is the epoch of the cursors that are given out.
CREATE VIEW runtime.sync_epoch AS SELECT id AS epoch FROM runtime.sync_starts ORDER BY number DESC LIMIT 1;

-- How far each projection has followed the event log.
CREATE TABLE runtime.sync_checkpoints (
  topic text PRIMARY KEY,
  position bigint NOT NULL DEFAULT 0,
  updated_at timestamptz NOT NULL DEFAULT now(),
  -- A rebuild increments it: a projector that cached older documents must read them again before it may advance.
  generation bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- The progress of each rebuild, so that an interrupted one resumes.
CREATE TABLE runtime.sync_reprojections (
  topic text PRIMARY KEY,
  -- Identifies the run. A run that finds another id here has been replaced.
  run text NOT NULL,
  -- The code version that produced the rebuilt documents.
  code text NOT NULL,
  -- The newest event that the rebuilt documents contain.
  position bigint NOT NULL DEFAULT 0,
  -- Documents up to this one are compared, and emitted again where they differed.
  compared_org text COLLATE "C" NOT NULL DEFAULT '',
  compared_key text COLLATE "C" NOT NULL DEFAULT '',
  documents bigint NOT NULL DEFAULT 0,
  differing bigint NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 10);

-- Rebuilt documents, beside the live read models.
CREATE TABLE runtime.sync_rebuilt_documents (
  topic text NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  doc_key text COLLATE "C" NOT NULL,
  doc_version bigint NOT NULL,
  payload bytea,
  payload_hash bytea,
  audience text[],
  deleted boolean NOT NULL,
  PRIMARY KEY (topic, org_id, doc_key)
) WITH (fillfactor = 80);

-- Streams that a projection cannot take. A stream is paused from the event that failed: its later events wait for it, so that
-- their order holds, and every other stream goes on.
CREATE TABLE runtime.sync_failed_streams (
  topic text NOT NULL,
  -- Whether a rebuild failed at it, and not the live projection.
  rebuilt boolean NOT NULL,
  org_id text NOT NULL,
  kind text NOT NULL,
  stream_id text NOT NULL,
  -- The first event that is not projected, and why.
  seq bigint NOT NULL,
  position bigint NOT NULL,
  error text NOT NULL,
  failed_at timestamptz NOT NULL DEFAULT now(),
  tried_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (topic, rebuilt, org_id, kind, stream_id)
);
CREATE INDEX sync_failed_streams_tried_at ON runtime.sync_failed_streams (topic, tried_at) WHERE NOT rebuilt;

-- How far the mirror has followed each topic.
CREATE TABLE runtime.sync_second_sink (
  topic text PRIMARY KEY,
  epoch text NOT NULL,
  watermark bigint NOT NULL,
  -- The mirror that the position belongs to: another one starts with a full snapshot.
  sink text NOT NULL DEFAULT ''
);
