import { readdirSync } from "node:fs";
import { join } from "node:path";
import { testDatabase } from "@khala/testing/postgres/test_database";
import { startProgram } from "@khala/testing/processes/programs";
import { pino } from "pino";
import { expect, test } from "vitest";
import { type Database, openDatabase } from "./database.ts";
import { migrate } from "./migrate.ts";

const log = pino({ level: "silent" });
const files = readdirSync(join(import.meta.dirname, "migrations"))
  .filter((file) => file.endsWith(".sql"))
  .sort();

const applied = (database: Database) =>
  database.query<{ version: number }>({
    text: "SELECT version FROM runtime.schema_migrations ORDER BY version",
  });

test("an empty database is brought to the newest version, and a second time changes nothing", async () => {
  await using fresh = await testDatabase({ empty: true });
  await migrate(fresh.database, log);
  const first = await applied(fresh.database);
  expect(first.map((row) => row.version)).toEqual(files.map((file) => Number(file.slice(0, 4))));
  await migrate(fresh.database, log);
  expect(await applied(fresh.database)).toEqual(first);
});

test("ten processes that migrate at once all succeed, and each migration is applied once", async () => {
  await using fresh = await testDatabase({ empty: true });
  const programs = Array.from({ length: 10 }, () => startProgram("migrate", fresh.url));
  const ends = await Promise.all(programs.map((program) => program.ended));
  expect(ends).toEqual(programs.map(() => ({ code: 0, errors: "" })));
  expect(await applied(fresh.database)).toHaveLength(files.length);
});

test("a schema newer than the code is refused with what to do, and left alone", async () => {
  await using newer = await testDatabase();
  await newer.database.query({
    text: "INSERT INTO runtime.schema_migrations (version, name) VALUES (9999, 'from_later')",
  });
  const before = await applied(newer.database);
  await expect(migrate(newer.database, log)).rejects.toThrow(
    new RegExp(
      `schema version 9999, but this Khala knows only up to ${Number(files.at(-1)!.slice(0, 4))}\\..*Run the newer Khala.*or restore a backup`,
    ),
  );
  expect(await applied(newer.database)).toEqual(before);
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

test("a migration that fails leaves nothing half-done, and is applied once its obstacle is gone", async () => {
  await using blocked = await testDatabase({ empty: true });
  await blocked.database.query({ text: "CREATE SCHEMA runtime" });
  // The last thing that the first migration makes.
  await blocked.database.query({ text: "CREATE TABLE runtime.events (obstacle int)" });
  await expect(migrate(blocked.database, log)).rejects.toMatchObject({ code: "42P07" });

  const made =
    "SELECT count(*)::int AS n FROM pg_tables WHERE schemaname = 'runtime' AND tablename LIKE 'event\\_%'";
  expect(await blocked.database.query({ text: made })).toEqual([{ n: 0 }]);
  expect(await applied(blocked.database)).toEqual([]);

  await blocked.database.query({ text: "DROP TABLE runtime.events" });
  await migrate(blocked.database, log);
  expect(await applied(blocked.database)).toHaveLength(files.length);
});
