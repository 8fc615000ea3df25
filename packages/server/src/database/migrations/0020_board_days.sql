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

SELECT runtime.board_spare(i.inhrelid::regclass, c.relname NOT LIKE '%\_other')
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent IN ('runtime.board_artifacts'::regclass, 'runtime.board_tasks'::regclass) AND c.relkind = 'r';

-- Makes the partitions of a day, if they are not there. What is in the default partition of that day moves over, and
-- whoever makes them waits for no one: a busy table is tried again later.
CREATE OR REPLACE FUNCTION runtime.board_make_partitions(p_day date) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
  suffix text := to_char(p_day, 'YYYYMMDD');
  low uuid := runtime.board_low_id(p_day);
  high uuid := runtime.board_low_id(p_day + 1);
  parent text;
  key text;
  made boolean := false;
BEGIN
  FOR parent, key IN VALUES ('board_artifacts', 'id'), ('board_tasks', 'task_id') LOOP
    CONTINUE WHEN to_regclass(format('runtime.%I', parent || '_' || suffix)) IS NOT NULL;
    -- One at a time. Waiting for a table, unlike for an advisory lock, makes this process see what others made meanwhile.
    EXECUTE format('LOCK TABLE ONLY runtime.%I IN SHARE UPDATE EXCLUSIVE MODE', parent);
    CONTINUE WHEN to_regclass(format('runtime.%I', parent || '_' || suffix)) IS NOT NULL;
    EXECUTE format('CREATE TABLE runtime.%I (LIKE runtime.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', parent || '_' || suffix, parent);
    PERFORM runtime.board_spare(format('runtime.%I', parent || '_' || suffix)::regclass, true);
    EXECUTE format('LOCK TABLE runtime.%I IN SHARE ROW EXCLUSIVE MODE', parent || '_other');
    EXECUTE format(
      'WITH moved AS (DELETE FROM runtime.%I WHERE %I >= $1 AND %I < $2 RETURNING *) INSERT INTO runtime.%I SELECT * FROM moved',
      parent || '_other', key, key, parent || '_' || suffix) USING low, high;
    EXECUTE format('ALTER TABLE runtime.%I ATTACH PARTITION runtime.%I FOR VALUES FROM (%L) TO (%L)',
      parent, parent || '_' || suffix, low, high);
    made := true;
  END LOOP;
  RETURN made;
END $$;
