import type { Database } from "../../database/database.ts";
import type { Claimed } from "./claimed.ts";

/** Which of these claims a holder still has: in rows of their own, and in the bundles that they came in. */
export async function heldOf(
  database: Pick<Database, "transaction">,
  holder: string,
  claims: readonly Claimed[],
): Promise<{ mine: ReadonlySet<bigint>; bundled: ReadonlySet<bigint> }> {
  const inBundles = claims.filter(({ bundle }) => bundle !== undefined);
  const [bundled, mine] = await database.transaction([
    // First: what leaves its bundle meanwhile is found in a row of its own.
    {
      name: "board_mine_bundled",
      text: `SELECT u.seq FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS u(agent, bundle, seq)
        CROSS JOIN LATERAL (
          SELECT FROM runtime.board_bundles b
          WHERE b.agent = u.agent AND b.seq = u.bundle AND b.claimed_by = $1 AND (u.seq - b.seq)::int = ANY (b.ats) OFFSET 0
        ) b`,
      values: [
        holder,
        inBundles.map(({ task }) => task.agent),
        inBundles.map(({ bundle }) => bundle),
        inBundles.map(({ seq }) => seq),
      ],
    },
    {
      name: "board_mine",
      text: `SELECT u.seq FROM unnest($2::bigint[], $3::int[]) AS u(seq, attempt)
        CROSS JOIN LATERAL (
          SELECT FROM runtime.board_queue q
          WHERE q.seq = u.seq AND q.claimed_by = $1 AND q.attempt = u.attempt OFFSET 0
        ) q`,
      values: [holder, claims.map(({ seq }) => seq), claims.map(({ task }) => task.attempt)],
    },
  ]);
  const seqs = (rows: typeof mine) => new Set(rows!.map(({ seq }) => seq as bigint));
  return { mine: seqs(mine), bundled: seqs(bundled) };
}
