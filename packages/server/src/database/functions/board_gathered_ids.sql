-- The artifacts of what is not settled and not in the queue by itself, and of batches that are not complete: they are needed.
CREATE FUNCTION runtime.board_gathered_ids() RETURNS SETOF uuid
LANGUAGE sql STABLE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
  SELECT unnest(r.ids) FROM runtime.board_arrivals r
  UNION ALL SELECT unnest(b.ids) FROM runtime.board_batches b
  UNION ALL SELECT unnest(o.ids) FROM runtime.board_bundles o
  UNION ALL SELECT unnest(k.artifact_ids) FROM runtime.board_queue q
  CROSS JOIN LATERAL (
    SELECT k.artifact_ids FROM runtime.board_tasks k
    WHERE k.task_id = q.task_id AND k.agent = q.agent AND k.replay_id = q.replay_id OFFSET 0
  ) k WHERE q.artifact_id IS NULL
$$;
