import type pg from "pg";

/** Why a session may not write, and what to do about it. */
export interface ReadOnly {
  readonly reason: string;
  readonly fix: string;
}

/** Finds out whether a session may write; undefined if it may. */
export async function findReadOnly(client: Pick<pg.Client, "query">): Promise<ReadOnly | undefined> {
  const { rows } = await client.query<{ standby: boolean; closed: boolean; role: string }>(
    `SELECT pg_is_in_recovery() AS standby, current_setting('default_transaction_read_only') = 'on' AS closed,
      quote_ident(session_user) AS role`,
  );
  const { standby, closed, role } = rows[0]!;
  if (standby)
    return {
      reason: "it is a standby, which accepts no writes",
      fix: "Point DATABASE_URL to the primary, by an address that follows it after a failover.",
    };
  if (!closed) return undefined;
  return {
    reason:
      "it accepts no writes: `default_transaction_read_only` is on for the server, the database or the role",
    fix: `Many providers set it when the disk is full: make room there. Otherwise: ALTER ROLE ${role} SET default_transaction_read_only = off.`,
  };
}
