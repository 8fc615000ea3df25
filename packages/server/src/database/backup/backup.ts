import { existsSync } from "node:fs";
import pg from "pg";
import { installedTables } from "../migrate.ts";
import { type BackupTable, BackupWriter, type NewBackup } from "./backup_file.ts";
import { copyOut } from "./copy.ts";

/** Not part of a backup: the schema is made by the Khala that restores, and leases belong to processes. */
const LEFT_OUT = ["schema_migrations", "schema_files", "leases"];

/** The progress of a backup or a restore. */
export interface BackupProgress {
  readonly table: string;
  /** The index of the table, from 1. */
  readonly nth: number;
  readonly tables: number;
  /** Bytes of rows so far. */
  readonly bytes: number;
  /** The fraction of the file that is read, where there is one. */
  readonly share?: number;
}

export interface BackUpOptions {
  readonly file: string;
  /** The version of Khala. */
  readonly khala: string;
  readonly now: Date;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: BackupProgress) => void;
}

/** The contents of a backup. */
export interface BackupContents {
  readonly tables: number;
  readonly rows: number;
}

/** Writes every table of the schema into a file, as of one moment, beside running servers. */
export async function backUp(client: pg.Client, options: BackUpOptions): Promise<BackupContents> {
  const { file, khala, now, signal, onProgress } = options;
  if (existsSync(file)) throw new Error(`${file} exists already. Name a new file, or delete this one.`);
  await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
  await client.query("SET LOCAL idle_in_transaction_session_timeout = 0");
  const { rows: schema } = await client.query(
    "SELECT to_regclass('runtime.schema_files') IS NULL AS missing",
  );
  if (schema[0].missing) throw new Error("This database has no Khala data. Check DATABASE_URL.");
  const tables = await readTables(client);
  const backup: NewBackup = {
    khala,
    created_at: now.toISOString(),
    postgres: (await client.query("SHOW server_version")).rows[0].server_version,
    schema: await installedTables(client),
    tables,
    // Numbers in the tables' snapshot were given out before this is read.
    sequences: await readSequences(client),
  };
  const writer = await BackupWriter.create(file, backup);
  let total = 0;
  let bytes = 0;
  try {
    for (const [index, table] of tables.entries()) {
      const rows = await copyOut(client, `COPY ${columnsOf(table)} TO STDOUT`, async (chunk) => {
        signal.throwIfAborted();
        bytes += chunk.length;
        onProgress({ table: table.name, nth: index + 1, tables: tables.length, bytes });
        await writer.write(chunk);
      });
      await writer.endTable(rows);
      total += rows;
    }
    await client.query("COMMIT");
    signal.throwIfAborted();
    await writer.finish();
  } catch (error) {
    await writer.discard();
    throw error;
  }
  return { tables: tables.length, rows: total };
}

/** The tables that a backup has, each after those that it refers to. */
export async function readTables(client: pg.Client): Promise<BackupTable[]> {
  const { rows } = await client.query<BackupTable>(
    `WITH RECURSIVE depths AS (
        SELECT oid, 0 AS depth FROM pg_class WHERE relnamespace = 'runtime'::regnamespace AND relkind = 'r'
        UNION SELECT k.conrelid, d.depth + 1 FROM depths d
          JOIN pg_constraint k ON k.confrelid = d.oid AND k.contype = 'f' AND k.conrelid <> d.oid)
      SELECT c.relname::text AS name, array_agg(a.attname::text ORDER BY a.attnum) AS columns
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
      WHERE c.relnamespace = 'runtime'::regnamespace AND c.relkind = 'r' AND c.relname <> ALL ($1)
      GROUP BY c.oid ORDER BY (SELECT max(depth) FROM depths d WHERE d.oid = c.oid), c.relname`,
    [LEFT_OUT],
  );
  return rows;
}

async function readSequences(client: pg.Client): Promise<NewBackup["sequences"]> {
  const { rows } = await client.query<{ name: string; step: string }>(
    `SELECT c.relname::text AS name, s.seqincrement::text AS step FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid
      WHERE c.relnamespace = 'runtime'::regnamespace ORDER BY 1`,
  );
  const sequences: NewBackup["sequences"] = [];
  for (const { name, step } of rows) {
    const next = `SELECT (last_value + CASE WHEN is_called THEN ${step} ELSE 0 END)::text AS next FROM ${quoted(name)}`;
    sequences.push({ name, next: (await client.query(next)).rows[0].next });
  }
  return sequences;
}

/** The name of a table or sequence of the schema, in SQL. */
export function quoted(name: string): string {
  return `runtime.${pg.escapeIdentifier(name)}`;
}

/** A table with its columns, as COPY takes them. */
export function columnsOf({ name, columns }: BackupTable): string {
  return `${quoted(name)} (${columns.map((column) => pg.escapeIdentifier(column)).join(", ")})`;
}
