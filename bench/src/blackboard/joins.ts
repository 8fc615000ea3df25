import pg from "pg";

/** A join as an app makes it beside a queue that has none: a row that counts. It keeps no results, which is less than Khala's. */
export interface Joins {
  /** Counts a part for each of these, and returns those of which there are as many as it takes. */
  count(correlations: readonly string[], parts: number, within?: pg.PoolClient): Promise<string[]>;
  close(): Promise<void>;
}

// In the order of ids, so that two batches never wait for each other.
const COUNT = `
  INSERT INTO bench_joins AS held (id, parts)
  SELECT id, count(*) FROM unnest($1::text[]) AS id GROUP BY id ORDER BY id
  ON CONFLICT (id) DO UPDATE SET parts = held.parts + excluded.parts
  RETURNING id, parts`;

/** Makes its table, if need be. */
export async function openJoins(url: string): Promise<Joins> {
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  await pool.query("CREATE TABLE IF NOT EXISTS bench_joins (id text PRIMARY KEY, parts bigint NOT NULL)");
  return {
    async count(correlations, parts, within) {
      const { rows } = await (within ?? pool).query<{ id: string; parts: string }>(COUNT, [correlations]);
      return rows.filter((row) => Number(row.parts) === parts).map(({ id }) => id);
    },
    close: () => pool.end(),
  };
}
