import type pg from "pg";
import type { Database } from "../database.ts";
import { lockSchema, tablesHash } from "../migrate.ts";
import { type BackupContents, type BackupProgress, columnsOf, quoted, readTables } from "./backup.ts";
import { BackupReader, type BackupTable } from "./backup_file.ts";
import { copyIn } from "./copy.ts";

/** Tables that have a row before the first server starts. */
const NEVER_EMPTY = ["event_log_head", "board_controls_version"];

export interface ReadOptions {
  readonly file: string;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: BackupProgress) => void;
}

export interface RestoreOptions extends ReadOptions {
  /** Deletes what the database has. Without it, one that has anything is refused. */
  readonly replace: boolean;
  /** Runs at the end of the transaction, on the restored rows. */
  readonly onRestored: (tx: Pick<Database, "query">) => Promise<unknown>;
}

/** Refuses a backup whose tables are not those that this Khala makes, before anything is touched. */
export async function checkBackup(file: string): Promise<void> {
  await using reader = await BackupReader.open(file);
  const { schema, khala } = reader.header;
  if (schema === tablesHash()) return;
  throw new Error(
    `The backup ${file} was made by Khala ${khala} with another database schema. ` +
      "Restore it with the version that made it. Then start this version on that database: it updates the schema, or says why it cannot.",
  );
}

/** Reads a backup to its end, and checks the checksum and the number of rows. */
export async function verifyBackup({ file, signal, onProgress }: ReadOptions): Promise<BackupContents> {
  await using reader = await BackupReader.open(file);
  const counted: number[] = [];
  for (const [index, table] of reader.header.tables.entries()) {
    let rows = 0;
    for await (const chunk of follow(reader, { index, table, signal, onProgress })) rows += lines(chunk);
    counted.push(rows);
  }
  return compare(reader, counted);
}

/** Puts the rows of a backup into the database, in one transaction. The schema is there, and no server uses it. */
export async function restore(client: pg.Client, options: RestoreOptions): Promise<BackupContents> {
  const { file, replace, signal, onProgress, onRestored } = options;
  await using reader = await BackupReader.open(file);
  const { tables, sequences } = reader.header;
  await client.query("BEGIN");
  await client.query("SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = '10s'");
  // Servers that start now wait for it.
  await lockSchema(client);
  await refuseUsers(client);
  if (!replace) await refuseRows(client);
  await createReadModels(client, tables);
  const existing = await readTables(client);
  await client.query(`TRUNCATE ${existing.map(({ name }) => quoted(name)).join(", ")}`);
  const counted: number[] = [];
  for (const [index, table] of tables.entries()) {
    const rows = follow(reader, { index, table, signal, onProgress });
    counted.push(await copyIn(client, `COPY ${columnsOf(table)} FROM STDIN`, rows));
  }
  const contents = await compare(reader, counted);
  // Unlike setval, it is undone with the transaction.
  for (const { name, next } of sequences)
    await client.query(`ALTER SEQUENCE ${quoted(name)} RESTART WITH ${BigInt(next)}`);
  await onRestored({
    query: async ({ text, values = [] }) => (await client.query(text, values as unknown[])).rows,
  });
  // The planner knows nothing about the new rows yet.
  await client.query(`ANALYZE ${existing.map(({ name }) => quoted(name)).join(", ")}`);
  signal.throwIfAborted();
  await client.query("COMMIT");
  return contents;
}

interface Following extends Omit<ReadOptions, "file"> {
  readonly index: number;
  readonly table: BackupTable;
}

/** The rows of a table, with progress. */
async function* follow(reader: BackupReader, following: Following): AsyncGenerator<Buffer> {
  const { index, table, signal, onProgress } = following;
  let bytes = 0;
  for await (const chunk of reader.readTable()) {
    signal.throwIfAborted();
    bytes += chunk.length;
    const { header, share } = reader;
    onProgress({ table: table.name, nth: index + 1, tables: header.tables.length, bytes, share });
    yield chunk;
  }
}

/** COPY ends each row with a newline, and escapes those in values. */
function lines(chunk: Buffer): number {
  let found = 0;
  for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, at + 1)) found++;
  return found;
}

async function compare(reader: BackupReader, counted: readonly number[]): Promise<BackupContents> {
  const expected = await reader.finish();
  for (const [index, rows] of counted.entries()) {
    if (rows === expected[index]) continue;
    const { name } = reader.header.tables[index]!;
    throw new Error(`The table ${name} has ${rows} rows instead of ${expected[index]}. Use another backup.`);
  }
  return { tables: counted.length, rows: counted.reduce((sum, rows) => sum + rows, 0) };
}

/** Fails if servers, workers or commands use the database. */
async function refuseUsers(client: pg.Client): Promise<void> {
  // Sessions of other roles have no readable name: they count too.
  const { rows: sessions } = await client.query<{ pid: number; role: string; address: string | null }>(
    `SELECT pid, usename AS role, host(client_addr) AS address FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename IS NOT NULL
        AND coalesce(application_name, 'khala') = 'khala' ORDER BY pid LIMIT 20`,
  );
  if (sessions.length > 0) {
    const named = sessions.map(
      ({ pid, role, address }) => `${pid} (${role}${address ? ` from ${address}` : ""})`,
    );
    throw new Error(
      `Servers use this database: PostgreSQL's processes ${named.join(", ")} serve them. Stop all servers and workers, then restore. A pooler keeps sessions of stopped ones: \`RECONNECT\` in PgBouncer's console ends them.`,
    );
  }
  const { rows: leases } = await client.query<{ name: string; seconds: number }>(
    `SELECT name, ceil(extract(epoch FROM expires_at - clock_timestamp()))::int AS seconds FROM runtime.leases
      WHERE expires_at > clock_timestamp() ORDER BY expires_at DESC LIMIT 1`,
  );
  const [lease] = leases;
  if (!lease) return;
  throw new Error(
    `A server uses this database, or was killed just now: the lease "${lease.name}" is held for ${lease.seconds} s more. ` +
      "Stop all servers and workers, then restore.",
  );
}

/** Creates the tables of the backup that are not the schema's own: those of read models. */
async function createReadModels(client: pg.Client, tables: readonly BackupTable[]): Promise<void> {
  const existing = new Set((await readTables(client)).map(({ name }) => name));
  // The rows that it adds for the topic are replaced by the backup's.
  for (const { name } of tables)
    if (!existing.has(name)) await client.query("SELECT runtime.create_read_model($1, $1)", [name]);
}

async function refuseRows(client: pg.Client): Promise<void> {
  const filled: string[] = [];
  for (const { name } of await readTables(client)) {
    if (NEVER_EMPTY.includes(name)) continue;
    const { rowCount } = await client.query(`SELECT FROM ${quoted(name)} LIMIT 1`);
    if (rowCount) filled.push(name);
  }
  if (filled.length === 0) return;
  const some = filled.slice(0, 5).join(", ");
  throw new Error(
    `The database already has data (in ${some}${filled.length > 5 ? ", …" : ""}). Add --replace to delete it, or name an empty database.`,
  );
}
