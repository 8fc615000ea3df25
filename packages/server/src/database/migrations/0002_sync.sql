-- The sync plane: watermarks, the journal, where each projection stands.

-- next_watermark is the newest watermark in use; the row lock makes watermarks dense and visible in commit order.
-- floor is the newest watermark that retention removed: a cursor below it has a gap.
CREATE TABLE runtime.sync_topic_sequences (
  topic text PRIMARY KEY,
  next_watermark bigint NOT NULL DEFAULT 0,
  floor bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

CREATE TABLE runtime.sync_stream_events (
  topic text NOT NULL,
  watermark bigint NOT NULL,
  doc_key text NOT NULL,
  doc_version bigint NOT NULL,
  op text NOT NULL CHECK (op IN ('upsert', 'delete')),
  -- The canonical JSON; null on delete, and in pointer mode, where the read model has it.
  payload bytea,
  payload_hash bytea,
  payload_bytes integer NOT NULL,
  org_id text NOT NULL,
  -- Who sees the row: these subjects of the org, or all of it when null; never those it is hidden from.
  audience text[],
  hidden_from text[],
  trace text,
  inserted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX sync_stream_events_watermark ON runtime.sync_stream_events (topic, watermark);
CREATE INDEX sync_stream_events_document ON runtime.sync_stream_events (topic, doc_key, watermark DESC);
CREATE INDEX sync_stream_events_org ON runtime.sync_stream_events (topic, org_id, watermark) WHERE audience IS NULL;
CREATE INDEX sync_stream_events_age ON runtime.sync_stream_events USING brin (inserted_at);

-- One row per named viewer of a journal row: what makes a resume cost what the viewer may see.
CREATE TABLE runtime.sync_stream_viewers (
  topic text NOT NULL,
  org_id text NOT NULL,
  subject text NOT NULL,
  watermark bigint NOT NULL,
  PRIMARY KEY (topic, org_id, subject, watermark)
);
CREATE INDEX sync_stream_viewers_watermark ON runtime.sync_stream_viewers (topic, watermark);

-- The epoch of all cursors, and the marks by which a restored or replaced database is recognised.
CREATE TABLE runtime.sync_epoch (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  epoch text NOT NULL,
  marks jsonb NOT NULL,
  since timestamptz NOT NULL DEFAULT now()
);

-- How far each projection has followed the authority log.
CREATE TABLE runtime.sync_checkpoints (
  topic text PRIMARY KEY,
  position bigint NOT NULL DEFAULT 0,
  updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 10);

-- Moves a checkpoint, or fails the transaction: whoever finds another position is not the only projector.
CREATE FUNCTION runtime.advance_checkpoint(p_topic text, p_from bigint, p_to bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE runtime.sync_checkpoints SET position = p_to, updated_at = now() WHERE topic = p_topic AND position = p_from;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the checkpoint of % is not at %', p_topic, p_from USING ERRCODE = '40001';
  END IF;
END $$;

CREATE TABLE runtime.revoked_tokens (
  jti text PRIMARY KEY,
  expires_at timestamptz NOT NULL
);

-- The read model of one topic. Each model has one; a model of the user's is added by the same call at its first start.
CREATE FUNCTION runtime.create_read_model(p_topic text, p_table text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format(
    'CREATE TABLE IF NOT EXISTS runtime.%I (
       doc_key text COLLATE "C" PRIMARY KEY,
       doc_version bigint NOT NULL,
       payload bytea,
       payload_hash bytea,
       org_id text NOT NULL,
       audience text[],
       deleted boolean NOT NULL DEFAULT false,
       watermark bigint NOT NULL,
       updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
     ) WITH (fillfactor = 80)', p_table);
  -- No index names a column that changes with every version, so that updates stay within their page.
  EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON runtime.%I (org_id, doc_key) WHERE audience IS NULL AND NOT deleted',
                 p_table || '_org', p_table);
  EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON runtime.%I USING gin (audience) WHERE audience IS NOT NULL AND NOT deleted',
                 p_table || '_audience', p_table);
  EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON runtime.%I (doc_key) WHERE deleted', p_table || '_deleted', p_table);
  INSERT INTO runtime.sync_topic_sequences (topic) VALUES (p_topic) ON CONFLICT DO NOTHING;
  INSERT INTO runtime.sync_checkpoints (topic) VALUES (p_topic) ON CONFLICT DO NOTHING;
END $$;

SELECT runtime.create_read_model('runtime.run_summaries', 'sync_run_summaries');
SELECT runtime.create_read_model('runtime.codex_worker_summaries', 'sync_codex_worker_summaries');

-- Who does the work that one process at a time should do. A lease saves effort; it is never what makes a write safe.
CREATE TABLE runtime.leases (
  name text PRIMARY KEY,
  holder text NOT NULL,
  expires_at timestamptz NOT NULL
);

-- How far a second sink has followed each topic.
CREATE TABLE runtime.sync_second_sink (
  topic text PRIMARY KEY,
  epoch text NOT NULL,
  watermark bigint NOT NULL
);
