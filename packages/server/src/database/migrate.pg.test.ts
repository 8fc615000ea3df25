import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startProgram } from "@khala/test-support/processes/programs";
import { pino } from "pino";
import { afterEach, expect, test } from "vitest";
import { type Database, openDatabase } from "./database.ts";
import { migrate, readMigrations, SCHEMA_VERSION } from "./migrate.ts";

const log = pino({ level: "silent" });
const FUNCTIONS = join(import.meta.dirname, "functions");
/** Generated columns and triggers depend on these, so they belong to the baseline and are never replaced. */
const inBaseline = ["document_field", "document_sort_key", "document_value", "note_approval_change"];
const names = readdirSync(FUNCTIONS).map((file) => file.replace(".sql", ""));

interface SqlFunction {
  readonly oid: number;
  readonly name: string;
  readonly parameters: number;
  readonly source: string;
  readonly definition: string;
}

const functionsOf = (database: Database) =>
  database.query<SqlFunction>({
    text: `SELECT oid::int, proname AS name, pronargs AS parameters, prosrc AS source, pg_get_functiondef(oid) AS definition
      FROM pg_proc WHERE pronamespace = 'runtime'::regnamespace ORDER BY proname`,
  });

const versionsOf = (database: Database) =>
  database.query<{ version: number }>({
    text: "SELECT version FROM runtime.schema_migrations ORDER BY version",
  });

const folders: string[] = [];
afterEach(() => Promise.all(folders.splice(0).map((folder) => rm(folder, { recursive: true }))));

/** Migrations of a later release. */
async function migrationsOf(files: Readonly<Record<string, string>>) {
  const folder = await mkdtemp(join(tmpdir(), "khala-migrations-"));
  folders.push(folder);
  for (const [name, sql] of Object.entries(files)) await writeFile(join(folder, name), sql);
  return readMigrations(folder);
}
const LATER = {
  "0002_first.sql": "CREATE TABLE runtime.later (id int PRIMARY KEY);",
  "0003_second.sql": "ALTER TABLE runtime.later ADD COLUMN note text NOT NULL DEFAULT '';",
};
const CONTRACT = "-- contract: since 0.1.0\nALTER TABLE runtime.later DROP COLUMN note;";

test("an empty database gets the schema, and a second start changes nothing", async () => {
  await using fresh = await testDatabase({ empty: true });
  await migrate(fresh.database, log);
  const functions = await functionsOf(fresh.database);
  expect(await versionsOf(fresh.database)).toEqual([{ version: SCHEMA_VERSION }]);
  await migrate(fresh.database, log);
  expect(await functionsOf(fresh.database)).toEqual(functions);
});

test("ten processes that start at once all succeed, and the schema is applied once", async () => {
  await using fresh = await testDatabase({ empty: true });
  const programs = Array.from({ length: 10 }, () => startProgram("migrate", fresh.url));
  const ends = await Promise.all(programs.map((program) => program.ended));
  expect(ends).toEqual(programs.map(() => ({ code: 0, errors: "" })));
  expect(await versionsOf(fresh.database)).toEqual([{ version: SCHEMA_VERSION }]);
});

test("the functions in the database have the text and settings of their files", async () => {
  await using fresh = await testDatabase();
  const functions = (await functionsOf(fresh.database)).filter(({ name }) => !inBaseline.includes(name));
  expect(functions.map(({ name }) => name)).toEqual(names.sort());
  for (const { name, source, definition } of functions) {
    const file = readFileSync(join(FUNCTIONS, `${name}.sql`), "utf8");
    const [head, body, end] = file.split("$$");
    expect(source, name).toBe(body);
    expect(end, name).toBe(";\n");
    const settings = [...head!.matchAll(/\bSET (\w+) = '?(\w+)'?/g)].map(
      ([, key, value]) => `${key} ${value}`,
    );
    const applied = [...definition.matchAll(/^ SET (\w+) TO '(\w+)'$/gm)].map(
      ([, key, value]) => `${key} ${value}`,
    );
    expect(applied.sort(), name).toEqual(settings.sort());
  }
});

test("a function takes at most eight parameters", async () => {
  await using fresh = await testDatabase();
  const functions = await functionsOf(fresh.database);
  const many = functions.filter(({ parameters }) => parameters > 8);
  expect(many.map(({ name }) => name)).toEqual([]);
});

test("replaces a function whose file changed, whatever its old signature, and keeps the others", async () => {
  await using changed = await testDatabase();
  const before = await functionsOf(changed.database);
  await changed.database.query({ text: "DROP FUNCTION runtime.trim_log" });
  await changed.database.query({
    text: "CREATE FUNCTION runtime.trim_log(p_stream text) RETURNS text LANGUAGE sql AS 'SELECT p_stream'",
  });
  await changed.database.query({
    text: "UPDATE runtime.schema_files SET hash = 'before' WHERE file = 'functions/trim_log.sql'",
  });
  await migrate(changed.database, log);
  const after = await functionsOf(changed.database);
  const others = (all: SqlFunction[]) => all.filter(({ name }) => name !== "trim_log");
  const trim = (all: SqlFunction[]) => all.filter(({ name }) => name === "trim_log").map((f) => f.definition);
  expect(others(after)).toEqual(others(before));
  expect(trim(after)).toEqual(trim(before));
});

test("drops a function without a file if Khala created it, and keeps it otherwise", async () => {
  await using older = await testDatabase();
  for (const name of ["ours", "theirs"]) {
    await older.database.query({
      text: `CREATE FUNCTION runtime.${name}() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
    });
  }
  await older.database.query({ text: "INSERT INTO runtime.schema_files VALUES ('functions/ours.sql', 'x')" });
  await migrate(older.database, log);
  const left = (await functionsOf(older.database)).map(({ name }) => name);
  expect(left).not.toContain("ours");
  expect(left).toContain("theirs");
});

test("migrations are applied once and in order, to an old database and to an empty one", async () => {
  const migrations = await migrationsOf(LATER);
  await using old = await testDatabase();
  await using empty = await testDatabase({ empty: true });
  for (const { database } of [old, empty]) {
    await migrate(database, log, migrations);
    await migrate(database, log, migrations);
    expect(await versionsOf(database)).toEqual([{ version: 1 }, { version: 2 }, { version: 3 }]);
    expect(await database.query({ text: "SELECT id, note FROM runtime.later" })).toEqual([]);
  }
});

test("an older server works with a newer schema, and keeps its functions", async () => {
  await using newer = await testDatabase();
  await migrate(newer.database, log, await migrationsOf(LATER));
  await newer.database.query({
    text: "CREATE FUNCTION runtime.of_later() RETURNS int LANGUAGE sql AS 'SELECT 1'",
  });
  await newer.database.query({
    text: "INSERT INTO runtime.schema_files VALUES ('functions/of_later.sql', 'x')",
  });
  await newer.database.query({
    text: "UPDATE runtime.schema_files SET hash = 'later' WHERE file = 'functions/trim_log.sql'",
  });
  const before = await functionsOf(newer.database);
  await migrate(newer.database, log);
  expect(await functionsOf(newer.database)).toEqual(before);
});

test("refuses to start a server older than a contracted schema, and says what to do", async () => {
  await using newer = await testDatabase();
  await migrate(newer.database, log, await migrationsOf({ ...LATER, "0004_third.sql": CONTRACT }));
  const before = await versionsOf(newer.database);
  await expect(migrate(newer.database, log, await migrationsOf(LATER))).rejects.toThrow(
    /schema version 4, but this Khala knows only up to 3\..*Run the newer Khala.*or restore a backup/,
  );
  expect(await versionsOf(newer.database)).toEqual(before);
});

test("a migration that was edited after it was applied is refused", async () => {
  await using edited = await testDatabase();
  await migrate(edited.database, log, await migrationsOf(LATER));
  const changed = await migrationsOf({ ...LATER, "0002_first.sql": "CREATE TABLE runtime.other (id int);" });
  await expect(migrate(edited.database, log, changed)).rejects.toThrow(/0002_first\.sql differ/);
});

test("tables of another baseline are refused with what to do", async () => {
  await using other = await testDatabase();
  await other.database.query({
    text: "UPDATE runtime.schema_files SET hash = 'other' WHERE file = 'baseline/sync.sql'",
  });
  await expect(migrate(other.database, log)).rejects.toThrow(
    /another development version of Khala: sync\.sql differ.*start again/,
  );
});

test("a database that cannot hold every character is refused with what to do", async () => {
  await using server = await testDatabase({ empty: true });
  const url = new URL(server.url);
  url.pathname = `${url.pathname}_latin1`;
  const name = url.pathname.slice(1);
  await server.database.query({
    text: `CREATE DATABASE "${name}" ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`,
  });
  const latin = openDatabase({ url: String(url), poolSize: 1, connectTimeoutMs: 60_000, log });
  try {
    await expect(migrate(latin, log)).rejects.toThrow(/encoded in LATIN1.*ENCODING 'UTF8'/);
  } finally {
    await latin.close();
    await server.database.query({ text: `DROP DATABASE "${name}"` });
  }
});

test("a schema of that name which Khala did not make is refused with what to do, and stays as it is", async () => {
  await using other = await testDatabase({ empty: true });
  await other.database.query({ text: "CREATE SCHEMA runtime" });
  await other.database.query({ text: "CREATE TABLE runtime.events (id int PRIMARY KEY)" });
  await expect(migrate(other.database, log)).rejects.toThrow(
    /schema `runtime` that is not Khala's: it contains events\. .*rename the other one, or point DATABASE_URL/,
  );
  const tables = { text: "SELECT tablename FROM pg_tables WHERE schemaname = 'runtime'" };
  expect(await other.database.query(tables)).toEqual([{ tablename: "events" }]);
});

test("a database that accepts no writes is refused with what to do", async () => {
  await using full = await testDatabase({ empty: true });
  const name = new URL(full.url).pathname.slice(1);
  await full.database.query({ text: `ALTER DATABASE "${name}" SET default_transaction_read_only = on` });
  const database = openDatabase({ url: full.url, poolSize: 1, connectTimeoutMs: 60_000, log });
  try {
    await expect(migrate(database, log)).rejects.toThrow(
      /accepts no writes: `default_transaction_read_only` is on.*disk is full.*ALTER ROLE/,
    );
  } finally {
    await database.close();
  }
});

test("a start that fails halfway leaves nothing behind, and the next one succeeds", async () => {
  await using blocked = await testDatabase({ empty: true });
  await blocked.database.query({ text: "CREATE SCHEMA runtime" });
  await blocked.database.query({ text: "CREATE TYPE runtime.sync_mirror AS ENUM ('obstacle')" });
  await expect(migrate(blocked.database, log)).rejects.toMatchObject({ code: "42710" });
  const made = "SELECT count(*)::int AS n FROM pg_tables WHERE schemaname = 'runtime'";
  expect(await blocked.database.query({ text: made })).toEqual([{ n: 0 }]);

  await blocked.database.query({ text: "DROP TYPE runtime.sync_mirror" });
  await migrate(blocked.database, log);
  expect(await versionsOf(blocked.database)).toEqual([{ version: SCHEMA_VERSION }]);
});
