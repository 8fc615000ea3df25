import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type pg from "pg";
import type { Logger } from "pino";
import type { Database } from "./database.ts";

const FOLDER = join(import.meta.dirname, "migrations");
/** Any constant will do, as long as every process uses the same. */
const ADVISORY_LOCK = 7_240_113;

interface Migration {
  readonly version: number;
  readonly name: string;
  readonly sql: string;
}

/** Brings the schema up to this code's version. Safe when many processes start at once; never goes back. */
export async function migrate(database: Database, log: Logger): Promise<void> {
  const migrations = load();
  const client = await database.connect();
  try {
    await client.query("SET lock_timeout = '60s'");
    const { rows } = await client.query("SHOW server_encoding");
    if (rows[0].server_encoding !== "UTF8") {
      throw new Error(
        `The database is encoded in ${rows[0].server_encoding}, which cannot hold every document. ` +
          "Create one with ENCODING 'UTF8' TEMPLATE template0, and point DATABASE_URL to it.",
      );
    }
    await client.query("SELECT pg_advisory_lock($1)", [ADVISORY_LOCK]);
    await client.query("CREATE SCHEMA IF NOT EXISTS runtime");
    await client.query(`CREATE TABLE IF NOT EXISTS runtime.schema_migrations (
      version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())`);
    const applied = await client.query(
      "SELECT coalesce(max(version), 0) AS version FROM runtime.schema_migrations",
    );
    const current: number = applied.rows[0].version;
    const newest = migrations.at(-1)?.version ?? 0;
    if (current > newest) {
      throw new Error(
        `The database has schema version ${current}, but this Khala knows only up to ${newest}. ` +
          "Run the newer Khala that migrated it, or restore a backup from before the upgrade.",
      );
    }
    for (const { version, name, sql } of migrations) {
      if (version <= current) continue;
      await client.query("BEGIN");
      await client.query(sql);
      await client.query("INSERT INTO runtime.schema_migrations (version, name) VALUES ($1, $2)", [
        version,
        name,
      ]);
      await client.query("COMMIT");
      log.debug({ version, name }, "migrated the database by one step");
    }
    await applyBoard(client);
    if (current < newest) log.info({ from: current, to: newest }, "migrated the database");
  } finally {
    // Ending the session releases the lock and rolls back what failed.
    await client.end();
  }
}

/** Applies the tables of the board once, and its functions as they are now. */
async function applyBoard(client: pg.Client): Promise<void> {
  const read = (folder: string, file: string) =>
    readFileSync(join(import.meta.dirname, folder, file), "utf8");
  await client.query("BEGIN");
  const { rows } = await client.query("SELECT to_regclass('runtime.board_tasks') IS NULL AS missing");
  if (rows[0].missing) await client.query(read("baseline", "board.sql"));
  const files = readdirSync(join(import.meta.dirname, "functions"));
  for (const file of files.filter((name) => name.endsWith(".sql")).sort())
    await client.query(read("functions", file));
  await client.query("COMMIT");
}

/** The schema version that this code needs. */
export function newestSchema(): number {
  return load().at(-1)?.version ?? 0;
}

function load(): Migration[] {
  const files = readdirSync(FOLDER).filter((file) => /^\d{4}_\w+\.sql$/.test(file));
  return files.sort().map((file) => ({
    version: Number(file.slice(0, 4)),
    name: file.slice(5, -4),
    sql: readFileSync(join(FOLDER, file), "utf8"),
  }));
}
