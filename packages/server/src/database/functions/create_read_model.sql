-- Creates the read model of a topic, with its sequence and checkpoint. Every server calls it for each of its models at start; one whose role may not create
-- tables can do so once they exist. Fields to order and filter by become generated columns, o_<field> and f_<field>, and indexes. What a model does not
-- declare any more is kept until a rebuild prunes it, because servers with the older model may be running.
CREATE FUNCTION runtime.create_read_model(
  p_topic text, p_table text, p_orders text[] DEFAULT '{}', p_filters text[] DEFAULT '{}', p_parts text[] DEFAULT '{}',
  p_prune boolean DEFAULT false
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  p_relation regclass;
  p_columns text[];
  p_indexes text[] := '{}';
  p_index record;
  p_changes text;
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
    WHERE a.attrelid = to_regclass(format('runtime.%I', p_table)) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
  ) THEN
    RAISE EXCEPTION 'The table runtime.% is not a read model. Choose another name for that of the topic %.', p_table, p_topic
      USING ERRCODE = 'duplicate_table';
  END IF;
  p_relation := to_regclass(format('runtime.%I', p_table));
  p_columns := ARRAY(SELECT 'o_' || o FROM unnest(p_orders) o) || ARRAY(SELECT 'f_' || f FROM unnest(p_filters) f);
  -- All in one statement: each alone would write the whole table again.
  SELECT string_agg(format('ADD COLUMN %I text COLLATE "C" GENERATED ALWAYS AS (runtime.%I(payload, %L)) STORED', c,
      CASE left(c, 2) WHEN 'o_' THEN 'document_sort_key' ELSE 'document_field' END, substr(c, 3)), ', ')
    INTO p_changes FROM unnest(p_columns) c
    WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = p_relation AND a.attname = c AND NOT a.attisdropped);
  IF p_changes IS NOT NULL THEN EXECUTE format('ALTER TABLE runtime.%I %s', p_table, p_changes); END IF;
  -- Every filter, every order, and every order within every filter. One index serves an order and its reverse.
  FOR p_index IN
    SELECT p_table || '_' || left(md5(columns), 8) AS name, columns FROM (
      SELECT concat_ws(', ', 'org_id', quote_ident('f_' || f), quote_ident('o_' || o), 'doc_key') AS columns
      FROM (SELECT unnest(p_filters) UNION ALL SELECT NULL) filters (f), (SELECT unnest(p_orders) UNION ALL SELECT NULL) orders (o)
      WHERE f IS NOT NULL OR o IS NOT NULL
    ) wanted
  LOOP
    p_indexes := p_indexes || p_index.name;
    IF to_regclass(format('runtime.%I', p_index.name)) IS NULL THEN
      EXECUTE format('CREATE INDEX %I ON runtime.%I (%s) WHERE audience IS NULL AND NOT deleted', p_index.name, p_table, p_index.columns);
    END IF;
  END LOOP;
  IF p_prune THEN
    FOR p_index IN
      SELECT c.relname AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
      WHERE i.indrelid = p_relation AND c.relname ~ '_[0-9a-f]{8}$' AND c.relname <> ALL (p_indexes)
    LOOP
      EXECUTE format('DROP INDEX runtime.%I', p_index.name);
    END LOOP;
    SELECT string_agg(format('DROP COLUMN %I', a.attname), ', ') INTO p_changes FROM pg_attribute a
      WHERE a.attrelid = p_relation AND a.attgenerated <> '' AND NOT a.attisdropped AND a.attname <> ALL (p_columns);
    IF p_changes IS NOT NULL THEN EXECUTE format('ALTER TABLE runtime.%I %s', p_table, p_changes); END IF;
  END IF;
  INSERT INTO runtime.sync_topic_sequences (topic, parts) VALUES (p_topic, p_parts) ON CONFLICT DO NOTHING;
  INSERT INTO runtime.sync_checkpoints (topic) VALUES (p_topic) ON CONFLICT DO NOTHING;
  -- Earlier rows are in other parts.
  UPDATE runtime.sync_topic_sequences SET parts = p_parts, parts_floor = next_watermark WHERE topic = p_topic AND parts <> p_parts;
END $$;
