-- Creates the read model of a topic, with its sequence and checkpoint. Every server calls it for each of its models at start; one whose role may not create
-- tables can do so once they exist.
CREATE FUNCTION runtime.create_read_model(p_topic text, p_table text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass(format('runtime.%I', p_table)) IS NULL THEN
    EXECUTE format(
      'CREATE TABLE runtime.%I (
         org_id text COLLATE "C" NOT NULL,
         doc_key text COLLATE "C" NOT NULL,
         doc_version bigint NOT NULL,
         payload bytea,
         payload_hash bytea,
         audience text[],
         deleted boolean NOT NULL DEFAULT false,
         watermark bigint NOT NULL,
         updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
         PRIMARY KEY (org_id, doc_key)
       ) WITH (fillfactor = 80)', p_table);
    -- No index has a column that changes with every version, so that updates are HOT: they touch no index.
    EXECUTE format('CREATE INDEX %I ON runtime.%I (org_id, doc_key) WHERE audience IS NULL AND NOT deleted',
                   p_table || '_org', p_table);
    EXECUTE format('CREATE INDEX %I ON runtime.%I USING gin (audience) WHERE audience IS NOT NULL AND NOT deleted',
                   p_table || '_audience', p_table);
  ELSIF ARRAY['audience', 'deleted', 'doc_key', 'doc_version', 'org_id', 'payload', 'payload_hash', 'updated_at', 'watermark'] <> (
    SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a
    WHERE a.attrelid = to_regclass(format('runtime.%I', p_table)) AND a.attnum > 0 AND NOT a.attisdropped
  ) THEN
    RAISE EXCEPTION 'The table runtime.% is not a read model. Choose another name for that of the topic %.', p_table, p_topic
      USING ERRCODE = 'duplicate_table';
  END IF;
  INSERT INTO runtime.sync_topic_sequences (topic) VALUES (p_topic) ON CONFLICT DO NOTHING;
  INSERT INTO runtime.sync_checkpoints (topic) VALUES (p_topic) ON CONFLICT DO NOTHING;
END $$;
