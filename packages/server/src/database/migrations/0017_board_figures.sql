-- What is waiting is counted up to a number, whatever there is.

-- Without those that were replayed, which stay as long as the others.
CREATE INDEX board_dead_letters_open ON runtime.board_dead_letters (agent) WHERE replay_id IS NULL;

-- Open tasks and dead letters of agents, of each kind up to p_up_to. Those that run are the first that were due.
CREATE FUNCTION runtime.board_counts(p_agents text[], p_up_to bigint)
RETURNS TABLE (agent text, heads bigint, running bigint, behind bigint, arrived bigint, dead bigint)
-- Along the indexes, and so no further than the limit: a planner that expects few would collect all first, and sort them.
LANGUAGE sql STABLE SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off AS $$
  SELECT u.agent, h.heads, h.running, b.behind, r.arrived, d.dead
  FROM unnest(p_agents) AS u(agent)
  CROSS JOIN LATERAL (
    SELECT count(*) AS heads, count(*) FILTER (WHERE q.held_until > now()) AS running FROM (
      SELECT q.held_until FROM runtime.board_queue q
      WHERE q.agent = u.agent AND q.head ORDER BY q.due_at, q.seq LIMIT p_up_to
    ) q
  ) h
  CROSS JOIN LATERAL (
    SELECT count(*) AS behind FROM (
      SELECT FROM runtime.board_queue q WHERE q.agent = u.agent AND NOT q.head ORDER BY q.lane, q.seq LIMIT p_up_to
    ) q
  ) b
  CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.members), 0)::bigint AS arrived FROM (
      SELECT r.members FROM runtime.board_arrivals r WHERE r.agent = u.agent ORDER BY r.seq LIMIT p_up_to
    ) r
  ) r
  CROSS JOIN LATERAL (
    SELECT count(*) AS dead FROM (
      SELECT FROM runtime.board_dead_letters d WHERE d.agent = u.agent AND d.replay_id IS NULL LIMIT p_up_to
    ) d
  ) d
$$;
