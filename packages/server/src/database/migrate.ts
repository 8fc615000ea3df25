import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import type { Logger } from "pino";
import type { Database } from "./database.ts";
import { findPooling, NEEDS_SESSIONS } from "./pooler.ts";
import { findReadOnly } from "./read_only.ts";

/** Any constant will do, as long as every process uses the same. */
const ADVISORY_LOCK = 7_240_113;

interface SqlFile {
  readonly name: string;
  readonly sql: string;
  readonly hash: string;
}

/** A change of the released tables; its version is the number that its file's name begins with. */
interface Migration extends SqlFile {
  readonly version: number;
  /** Whether servers from before it cannot work with its tables. */
  readonly contracts: boolean;
}

/** The version of a database that has the baseline alone; migrations count from 2. */
const BASELINE_VERSION = 1;

/** Hashes of tables ignore comments and layout, so that those may be edited. */
const statements = (sql: string) => sql.replaceAll(/--.*$/gm, "").replaceAll(/\s+/g, " ").trim();
/** The tables of the first release, applied once. */
const baseline = () => readSql(join(import.meta.dirname, "baseline"), statements);
/** One function per file, named after it; each is applied again when its file has changed. */
const functions = () => readSql(join(import.meta.dirname, "functions"), (sql) => sql);

/** The migrations of a folder, in order. */
export function readMigrations(folder = join(import.meta.dirname, "migrations")): readonly Migration[] {
  if (!existsSync(folder)) return [];
  return readSql(folder, statements).map((file) => {
    const version = Number(/^(\d{4})_\w+\.sql$/.exec(file.name)?.[1]);
    return { ...file, version, contracts: /^-- contract: /m.test(file.sql) };
  });
}

const versionOf = (migrations: readonly Migration[]) => migrations.at(-1)?.version ?? BASELINE_VERSION;

/** The schema version that this code creates and needs. */
export const SCHEMA_VERSION = versionOf(readMigrations());

/**
 * Creates or updates the schema, in one transaction. Safe when many processes start at once. A newer schema is left as it is:
 * servers of two releases work side by side during an upgrade. It is refused once it lacks what this code needs, and so is a pooler
 * that shares sessions. If the schema is current, the role needs no right to create anything.
 */
export async function migrate(
  database: Database,
  log: Logger,
  migrations: readonly Migration[] = readMigrations(),
): Promise<void> {
  const client = await database.connect();
  try {
    if ((await findPooling(client, () => database.connect())) === "transaction")
      throw new Error(
        `The connection pooler in front of PostgreSQL shares sessions between clients. ${NEEDS_SESSIONS}`,
      );
    await client.query("SET lock_timeout = '60s'");
    await checkEncoding(client);
    const readOnly = await findReadOnly(client);
    if (readOnly) throw new Error(`The database cannot be used: ${readOnly.reason}. ${readOnly.fix}`);
    await client.query("BEGIN");
    await lockSchema(client);
    const target = versionOf(migrations);
    const installed = await installedVersion(client, target);
    if (installed === 0) await createTables(client);
    else await checkTables(client, migrations);
    for (const migration of migrations) if (migration.version > installed) await apply(client, migration);
    if (installed === 0) log.info({ version: target }, "created the database schema");
    else if (installed < target)
      log.info({ from: installed, version: target }, "updated the database schema");
    // Its functions are those of newer servers, and work for this one.
    if (installed > target) return;
    const changed = await updateFunctions(client);
    if (changed.length > 0) log.debug({ functions: changed }, "updated the SQL functions");
    await client.query("COMMIT");
  } catch (error) {
    throw await explainMissingRight(database, error);
  } finally {
    // Ending the session releases the lock and rolls back an unfinished transaction.
    await client.end();
  }
}

/** Makes other processes that start wait until this transaction ends. */
export async function lockSchema(client: pg.Client): Promise<void> {
  await client.query("SELECT pg_advisory_xact_lock($1)", [ADVISORY_LOCK]);
}

/** Identifies the tables that this code creates. */
export function tablesHash(): string {
  return hashOf(new Map([...baseline(), ...readMigrations()].map(({ name, hash }) => [name, hash])));
}

/** Identifies the tables that the database has: the `tablesHash` of the code that created them. */
export async function installedTables(client: pg.Client): Promise<string> {
  return hashOf(
    new Map([...(await hashesOf(client, "baseline")), ...(await hashesOf(client, "migrations"))]),
  );
}

function hashOf(files: ReadonlyMap<string, string>): string {
  const lines = [...files].map(([name, hash]) => `${name} ${hash}`).sort();
  return createHash("sha256").update(lines.join("\n")).digest("hex");
}

/** If the role may not create what the schema lacks, an error that says who can. */
export async function explainMissingRight(database: Database, error: unknown): Promise<unknown> {
  if ((error as { code?: string }).code !== "42501") return error;
  const [row] = await database.query<{ role: string }>({ text: "SELECT current_user AS role" });
  const { role } = row!;
  return new Error(
    `The schema is not current, and the role ${role} may not change it (${(error as Error).message}). ` +
      `Run \`khala migrate --app <file> --grant ${role}\` as the role that owns it, then start again.`,
    { cause: error },
  );
}

/** Gives a role what a server needs that does not change the schema. */
export async function grantServing(database: Database, role: string): Promise<void> {
  const to = pg.escapeIdentifier(role);
  await database.interactive(async (tx) => {
    const tables = await tx.query<{ name: string }>({
      text: "SELECT format('runtime.%I', tablename) AS name FROM pg_tables WHERE schemaname = 'runtime'",
    });
    // The serving role does not write the schema's version.
    const served = tables.map(({ name }) => name).filter((name) => !name.startsWith("runtime.schema_"));
    for (const text of [
      `GRANT USAGE ON SCHEMA runtime TO ${to}`,
      `GRANT SELECT ON ALL TABLES IN SCHEMA runtime TO ${to}`,
      `GRANT INSERT, UPDATE, DELETE ON ${served.join(", ")} TO ${to}`,
      `GRANT USAGE ON ALL SEQUENCES IN SCHEMA runtime TO ${to}`,
      `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA runtime TO ${to}`,
    ])
      await tx.query({ text });
  });
}

async function checkEncoding(client: pg.Client): Promise<void> {
  const { rows } = await client.query("SHOW server_encoding");
  if (rows[0].server_encoding === "UTF8") return;
  throw new Error(
    `The database is encoded in ${rows[0].server_encoding}, which cannot hold every document. ` +
      "Create one with ENCODING 'UTF8' TEMPLATE template0, and point DATABASE_URL to it.",
  );
}

/** Whether Khala has made its schema, or something else one of that name. */
export async function inspectSchema(client: Pick<pg.Client, "query">): Promise<{
  readonly created: boolean;
  readonly foreign?: { readonly reason: string; readonly fix: string };
}> {
  // From the catalog, which a role may read that has no right to the schema.
  const { rows } = await client.query<{ name: string }>(
    "SELECT relname::text AS name FROM pg_class WHERE relnamespace = to_regnamespace('runtime') AND relkind <> 'i' ORDER BY 1",
  );
  const names = rows.map(({ name }) => name);
  if (names.includes("schema_files")) return { created: true };
  if (names.length === 0) return { created: false };
  const reason = `The database has a schema \`runtime\` that is not Khala's: it contains ${names.slice(0, 3).join(", ")}${names.length > 3 ? ", …" : ""}.`;
  const fix =
    "Khala needs this name for its own schema: rename the other one, or point DATABASE_URL to another database.";
  return { created: false, foreign: { reason, fix } };
}

/** The version of the schema in the database; 0 if there is none. */
async function installedVersion(client: pg.Client, target: number): Promise<number> {
  const schema = await inspectSchema(client);
  if (schema.foreign) throw new Error(`${schema.foreign.reason} ${schema.foreign.fix}`);
  if (!schema.created) return 0;
  const { rows } = await client.query(
    `SELECT coalesce(max(version), 0) AS version, coalesce(max(version) FILTER (WHERE contracts), 0) AS contracted
      FROM runtime.schema_migrations`,
  );
  const { version, contracted } = rows[0] as { version: number; contracted: number };
  if (contracted > target) {
    throw new Error(
      `The database has schema version ${version}, but this Khala knows only up to ${target}. ` +
        "Run the newer Khala that migrated it, or restore a backup from before the upgrade.",
    );
  }
  return version;
}

async function createTables(client: pg.Client): Promise<void> {
  // A user who may not create schemas can work in one that an administrator has prepared.
  const { rows } = await client.query("SELECT to_regnamespace('runtime') IS NULL AS missing");
  if (rows[0].missing) await client.query("CREATE SCHEMA runtime");
  await client.query(`CREATE TABLE runtime.schema_migrations (
      version integer PRIMARY KEY, name text NOT NULL, contracts boolean NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE runtime.schema_files (file text PRIMARY KEY, hash text NOT NULL)`);
  for (const { name, sql, hash } of baseline()) {
    await client.query(sql);
    await client.query("INSERT INTO runtime.schema_files VALUES ($1, $2)", [`baseline/${name}`, hash]);
  }
  await recordVersion(client, BASELINE_VERSION, "baseline", false);
}

async function apply(client: pg.Client, { version, name, sql, hash, contracts }: Migration): Promise<void> {
  await client.query(sql);
  await client.query("INSERT INTO runtime.schema_files VALUES ($1, $2)", [`migrations/${name}`, hash]);
  await recordVersion(client, version, name, contracts);
}

const recordVersion = (client: pg.Client, version: number, name: string, contracts: boolean) =>
  client.query("INSERT INTO runtime.schema_migrations (version, name, contracts) VALUES ($1, $2, $3)", [
    version,
    name,
    contracts,
  ]);

/** Before a release its files are edited in place: tables of other ones cannot be updated. */
async function checkTables(client: pg.Client, migrations: readonly Migration[]): Promise<void> {
  const created = await hashesOf(client, "baseline");
  const migrated = await hashesOf(client, "migrations");
  const different = [
    ...baseline().filter(({ name, hash }) => created.get(name) !== hash),
    ...migrations.filter(({ name, hash }) => (migrated.get(name) ?? hash) !== hash),
  ];
  if (different.length === 0) return;
  throw new Error(
    `The database was created by another development version of Khala: ${different.map(({ name }) => name).join(", ")} differ. ` +
      "Drop the schema `runtime` or delete the data folder, then start again; or run the version that created it.",
  );
}

/** Applies the functions whose files have changed, and drops those without a file. Returns their names. */
async function updateFunctions(client: pg.Client): Promise<readonly string[]> {
  const hashes = await hashesOf(client, "functions");
  const files = functions();
  const changed = files.filter(({ name, hash }) => hashes.get(name) !== hash);
  const gone = [...hashes.keys()].filter((name) => !files.some((file) => file.name === name));
  // First all that must go: a changed signature would leave the old function as an overload.
  for (const name of [...changed.map((file) => file.name), ...gone]) {
    const { rows } = await client.query(
      `SELECT p.oid::regprocedure::text AS signature FROM pg_proc p
        WHERE p.pronamespace = 'runtime'::regnamespace AND p.proname = $1`,
      [functionOf(name)],
    );
    for (const { signature } of rows) await client.query(`DROP FUNCTION ${signature}`);
    await client.query("DELETE FROM runtime.schema_files WHERE file = $1", [`functions/${name}`]);
  }
  for (const { name, sql, hash } of changed) {
    await client.query(sql);
    await client.query("INSERT INTO runtime.schema_files VALUES ($1, $2)", [`functions/${name}`, hash]);
  }
  return [...changed.map((file) => file.name), ...gone].map(functionOf);
}

const functionOf = (file: string) => file.replace(/\.sql$/, "");

/** The hashes of the applied files of a folder, by file name. */
async function hashesOf(client: pg.Client, folder: string): Promise<Map<string, string>> {
  const { rows } = await client.query<{ file: string; hash: string }>(
    "SELECT substr(file, length($1) + 2) AS file, hash FROM runtime.schema_files WHERE starts_with(file, $1 || '/')",
    [folder],
  );
  return new Map(rows.map(({ file, hash }) => [file, hash]));
}

function readSql(folder: string, significant: (sql: string) => string): SqlFile[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(".sql"))
    .sort()
    .map((name) => {
      const sql = readFileSync(join(folder, name), "utf8");
      return { name, sql, hash: createHash("sha256").update(significant(sql)).digest("hex") };
    });
}
