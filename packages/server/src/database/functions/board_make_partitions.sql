-- Makes the partitions of a day, if they are not there. What is in the default partition of that day moves over, and
-- whoever makes them waits for no one: a busy table is tried again later.
CREATE FUNCTION runtime.board_make_partitions(p_day date) RETURNS boolean
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
    EXECUTE format('CREATE TABLE runtime.%I (LIKE runtime.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)',
      parent || '_' || suffix, parent);
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
