-- Locks lanes until the transaction ends. A statement that adds to a lane or takes its first task away holds the lock, so that one of
-- them sees what the other did. Lanes share a fixed number of locks, and callers give them in ascending order: no deadlock.
CREATE OR REPLACE FUNCTION runtime.board_lock_lanes(p_locks int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(7240116, u.lock) FROM unnest(p_locks) AS u(lock);
END $$;
