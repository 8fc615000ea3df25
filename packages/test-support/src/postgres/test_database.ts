import { randomUUID } from "node:crypto";
import { pino } from "pino";
import { inject } from "vitest";
import { type Database, openDatabase } from "../../../server/src/database/database.ts";
import { administer, withDatabase } from "./service.ts";

/** A database of its own for a test or a test file, at the newest schema. */
export interface TestDatabase extends AsyncDisposable {
  readonly url: string;
  /** A pool on it, closed with it. */
  readonly database: Database;
}

export interface TestDatabaseOptions {
  readonly poolSize?: number;
  /** Starts without any schema. */
  readonly empty?: boolean;
}

/** Makes a database. The caller disposes of it: `await using`, or `afterAll` for one that a whole file shares. */
export async function testDatabase({
  poolSize = 4,
  empty = false,
}: TestDatabaseOptions = {}): Promise<TestDatabase> {
  const server = inject("services")?.postgres;
  if (!server)
    throw new Error("There is no PostgreSQL in this run. Only *.pg.test.ts files and those in e2e/ get one.");
  const name = `khala_test_${randomUUID().replaceAll("-", "")}`;
  await administer(
    server.DATABASE_URL!,
    `CREATE DATABASE ${name} TEMPLATE ${empty ? "template0" : server.TEMPLATE} ${server.HOW_TO_COPY}`,
  );
  const url = withDatabase(server.DATABASE_URL!, name);
  // Longer than a busy machine needs for a connection.
  const database = openDatabase({ url, poolSize, log: pino({ level: "silent" }), connectTimeoutMs: 60_000 });
  return {
    url,
    database,
    async [Symbol.asyncDispose]() {
      await database.close();
      // FORCE fails for a role without privileges while autovacuum works in the database: the role may not end that worker.
      await administer(server.ADMIN_URL ?? server.DATABASE_URL!, `DROP DATABASE ${name} WITH (FORCE)`);
    },
  };
}
