-- What is claimed or gathered is read along its index, and so no further than the limit, however much waits: a planner that
-- expects few would collect all of it first, and sort it, for every bundle anew.
ALTER FUNCTION runtime.board_claim_tasks(text, int, text, bigint, float8)
  SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off;
ALTER FUNCTION runtime.board_take_arrivals(text, bigint)
  SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off;
