// OFFSET 0 makes the planner look up each row by primary key, even without statistics.

/**
 * A stream's bounds, on each row, and its entries after a position. Parameters: stream, sequence, max entries, max bytes, time.
 * A restored database gives lost numbers to other entries: one at the position itself is then part of the page. A position
 * has the time of its own entry, or of the one that follows.
 */
export const READ = `
SELECT s.epoch, s.floor, s.seq, s.time, e.seq AS entry, e.time AS at, e.data
FROM runtime.log_streams s
LEFT JOIN LATERAL (
  SELECT o.seq, o.time, o.data FROM (
    SELECT e.seq, e.time, e.data, sum(e.bytes) OVER (ORDER BY e.seq) AS total, row_number() OVER (ORDER BY e.seq) AS nth
    FROM (
      SELECT e.seq, e.time, e.data, e.bytes FROM runtime.log_entries e
      WHERE e.log_id = s.log_id AND e.seq >= $2 AND (e.seq > $2 OR e.time > $5 OR (e.time < $5 AND NOT EXISTS (
        SELECT FROM runtime.log_entries n WHERE n.log_id = s.log_id AND n.seq = $2 + 1 AND n.time = $5)))
      ORDER BY e.seq LIMIT $3
    ) e
  ) o WHERE o.nth = 1 OR o.total <= $4
) e ON true
WHERE s.stream = $1 AND s.expires_at > now()
ORDER BY e.seq`;

/** The bounds of streams, in order; nulls for missing ones. */
export const BOUNDS = `
SELECT s.epoch, s.floor, s.seq, s.time
FROM unnest($1::text[]) WITH ORDINALITY AS r(stream, n)
LEFT JOIN LATERAL (
  SELECT s.epoch, s.floor, s.seq, s.time FROM runtime.log_streams s
  WHERE s.stream = r.stream AND s.expires_at > now() OFFSET 0
) s ON true
ORDER BY r.n`;

/** Moves bookmarks forward. Parameters: streams, sequences. Locks rows in the order of an append, to avoid deadlocks. */
export const BOOKMARK = `
WITH there AS MATERIALIZED (
  SELECT s.stream FROM runtime.log_streams s
  WHERE s.stream = ANY ($1::text[]) AND s.expires_at > now() ORDER BY s.stream FOR UPDATE
)
UPDATE runtime.log_streams s SET ui = least(m.seq, s.seq)
FROM unnest($1::text[], $2::bigint[]) AS m(stream, seq)
WHERE s.stream = ANY (ARRAY(SELECT stream FROM there)) AND s.stream = m.stream AND coalesce(s.ui, -1) < least(m.seq, s.seq)`;

/**
 * The tails of many streams. Parameters: streams, sequences, max entries and max bytes each, times. Nulls for missing streams. A
 * tail begins at the position itself if another entry is there now. Time 0 is not compared.
 */
export const TAILS = `
SELECT r.n::int AS n, s.epoch, s.seq AS head, e.seq AS entry, e.time AS at, e.data
FROM unnest($1::text[], $2::bigint[], $5::bigint[]) WITH ORDINALITY AS r(stream, after, at, n)
LEFT JOIN LATERAL (
  SELECT s.log_id, s.epoch, s.seq FROM runtime.log_streams s
  WHERE s.stream = r.stream AND s.expires_at > now() OFFSET 0
) s ON true
LEFT JOIN LATERAL (
  SELECT o.seq, o.time, o.data FROM (
    SELECT e.seq, e.time, e.data, sum(e.bytes) OVER (ORDER BY e.seq) AS total, row_number() OVER (ORDER BY e.seq) AS nth
    FROM (
      SELECT e.seq, e.time, e.data, e.bytes FROM runtime.log_entries e
      WHERE e.log_id = s.log_id AND e.seq >= r.after AND (e.seq > r.after OR (r.at > 0 AND e.time <> r.at)) ORDER BY e.seq LIMIT $3
    ) e
  ) o WHERE o.nth = 1 OR o.total <= $4
) e ON true
ORDER BY r.n, e.seq`;
