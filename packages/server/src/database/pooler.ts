import type pg from "pg";

/** When a pooler gives a client another session of PostgreSQL: with each connection, or with each transaction. */
export type Pooling = "session" | "transaction";

/** Other clients of a busy pooler may hide in one round that sessions are shared. */
const ROUNDS = 10;

/** How the pooler between a connection and PostgreSQL works; undefined if there is none. `another` opens a second connection. */
export async function findPooling(
  client: pg.Client,
  another: () => Promise<pg.Client>,
): Promise<Pooling | undefined> {
  const session = await sessionOf(client);
  // A pooler reports a version of its own to its clients.
  if ((client as pg.Client & { processID?: number }).processID === session) return undefined;
  const other = await another();
  try {
    // While this client is connected, a session of its own is always the same one, and nobody else's. A shared one is handed to
    // the next who asks; if sessions take turns, two requests in a row reach different ones.
    for (let round = 0; round < ROUNDS; round++)
      if (
        (await sessionOf(client)) !== session ||
        (await sessionOf(client)) !== session ||
        (await sessionOf(other)) === session
      )
        return "transaction";
    return "session";
  } finally {
    await other.end();
  }
}

async function sessionOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  return rows[0]!.pid;
}

/** The message for a pooler that shares sessions. */
export const NEEDS_SESSIONS =
  "Khala needs sessions for LISTEN and prepared statements. Set `pool_mode = session` for this database in PgBouncer, or put PostgreSQL's own address into DATABASE_URL.";
