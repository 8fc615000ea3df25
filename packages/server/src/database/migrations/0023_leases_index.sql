-- A conversation is found by its key even where statistics say that nothing runs. That a run is somebody's follows from a
-- comparison with its id, so statements that name both read all leases instead, by a plan that they kept when there were many.
-- A lease has its time exactly where there is a run.
DROP INDEX runtime.conversations_leases;
CREATE INDEX conversations_leases ON runtime.conversations (lease_until) WHERE lease_until IS NOT NULL;
