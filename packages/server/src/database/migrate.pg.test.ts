import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { testDatabase } from "@khala/testing/postgres/test_database";
import { startProgram } from "@khala/testing/processes/programs";
import { pino } from "pino";
import { expect, test } from "vitest";
import { type Database, openDatabase } from "./database.ts";
import { migrate, SCHEMA_VERSION } from "./migrate.ts";

const log = pino({ level: "silent" });
const FUNCTIONS = join(import.meta.dirname, "functions");
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
  database.query<{ version: number }>({ text: "SELECT version FROM runtime.schema_migrations" });

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

test("the functions in the database are those of the files, with the same text and settings", async () => {
  await using fresh = await testDatabase();
  const functions = await functionsOf(fresh.database);
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

test("a function whose file has changed is replaced, whatever its signature was, and the others stay", async () => {
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

test("a function without a file is dropped if Khala created it, and kept if somebody else did", async () => {
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

test("a schema newer than the code is refused with what to do, and left alone", async () => {
  await using newer = await testDatabase();
  await newer.database.query({
    text: "INSERT INTO runtime.schema_migrations (version, name) VALUES (9999, 'from_later')",
  });
  const before = await versionsOf(newer.database);
  await expect(migrate(newer.database, log)).rejects.toThrow(
    new RegExp(
      `schema version 9999, but this Khala knows only up to ${SCHEMA_VERSION}\\..*Run the newer Khala.*or restore a backup`,
    ),
  );
  expect(await versionsOf(newer.database)).toEqual(before);
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

test("a start that fails halfway leaves nothing behind, and the next one succeeds", async () => {
  await using blocked = await testDatabase({ empty: true });
  await blocked.database.query({ text: "CREATE SCHEMA runtime" });
  await blocked.database.query({ text: "CREATE TABLE runtime.sync_second_sink (obstacle int)" });
  await expect(migrate(blocked.database, log)).rejects.toMatchObject({ code: "42P07" });
  const made = "SELECT count(*)::int AS n FROM pg_tables WHERE schemaname = 'runtime'";
  expect(await blocked.database.query({ text: made })).toEqual([{ n: 1 }]);

  await blocked.database.query({ text: "DROP TABLE runtime.sync_second_sink" });
  await migrate(blocked.database, log);
  expect(await versionsOf(blocked.database)).toEqual([{ version: SCHEMA_VERSION }]);
});
