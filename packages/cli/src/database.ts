import pg from "pg";

const TIMEOUT_MS = 10_000;

/** Runs one statement on a connection of its own. */
export async function ask<T>(
  url: string,
  { text, values = [] }: { readonly text: string; readonly values?: unknown[] },
): Promise<T[]> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: TIMEOUT_MS,
    query_timeout: TIMEOUT_MS * 6,
  });
  client.on("error", () => {}); // The statement that it breaks reports it.
  await client.connect();
  try {
    return (await client.query(text, values)).rows as T[];
  } finally {
    await client.end();
  }
}
