-- What the tables of a day are spared. They are written once and dropped as a whole: to mark their rows as visible and frozen
-- while they grow, again and again, costs as much as a third of writing them, and nobody gains by it. If they become so old
-- that it matters, PostgreSQL does it whatever is set here. And whatever is looked for is looked for through an index: a few
-- of their rows are enough to tell how many there are, and what is in texts and lists is not counted at all.
CREATE FUNCTION runtime.board_spare(p_table regclass, p_is_day boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  name text;
  target int;
BEGIN
  IF p_is_day THEN EXECUTE format('ALTER TABLE %s SET (autovacuum_vacuum_insert_threshold = -1)', p_table); END IF;
  FOR name, target IN
    SELECT a.attname, CASE WHEN a.attname IN ('routes', 'body', 'artifact_ids', 'artifact_versions') THEN 0 ELSE 10 END
    FROM pg_attribute a WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped
  LOOP
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', p_table, name, target);
  END LOOP;
END $$;
