-- Open tasks and dead letters of agents, of each kind up to p_up_to. Those that run are the first that were due. A task of a
-- bundle is a head; of bundles so many are looked at as have that many tasks, and if there are more, they count as that many.
CREATE FUNCTION runtime.board_counts(p_agents text[], p_up_to bigint)
RETURNS TABLE (agent text, heads bigint, running bigint, behind bigint, arrived bigint, dead bigint)
-- Along the indexes, and so no further than the limit: a planner that expects few would collect all first, and sort them.
LANGUAGE sql STABLE SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off AS $$
  SELECT u.agent, h.heads + o.heads, h.running + o.running, b.behind, r.arrived, d.dead
  FROM unnest(p_agents) AS u(agent)
  CROSS JOIN LATERAL (
    SELECT count(*) AS heads, count(*) FILTER (WHERE q.held_until > now()) AS running FROM (
      SELECT q.held_until FROM runtime.board_queue q
      WHERE q.agent = u.agent AND q.head ORDER BY q.due_at, q.seq LIMIT p_up_to
    ) q
  ) h
  CROSS JOIN LATERAL (
    SELECT greatest(coalesce(sum(o.tasks), 0), CASE WHEN count(*) > p_up_to / 100 THEN p_up_to END)::bigint AS heads,
      coalesce(sum(o.tasks) FILTER (WHERE o.held_until > now()), 0)::bigint AS running
    FROM (
      SELECT o.held_until, cardinality(o.ats) AS tasks FROM runtime.board_bundles o
      WHERE o.agent = u.agent ORDER BY o.seq LIMIT p_up_to / 100 + 1
    ) o
  ) o
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
