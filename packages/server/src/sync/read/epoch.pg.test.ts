import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtemp, rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { testContext } from "@khala/testing/kit/context";
import { until } from "@khala/testing/kit/until";
import { administer, withDatabase } from "@khala/testing/postgres/service";
import { testDatabase } from "@khala/testing/postgres/test_database";
import { expect, test } from "vitest";
import { openDatabase } from "../../database/database.ts";
import { startEmbeddedPostgres } from "../../database/embedded.ts";
import { migrate } from "../../database/migrate.ts";
import { systemClock } from "../../kit/clock.ts";
import { rotateEpoch, settleEpoch } from "./epoch.ts";

/** The epoch that a server would find at a URL, over a pool that is gone afterwards. */
async function epochAt(url: string): Promise<string> {
  const context = await testContext();
  const database = openDatabase({ url, poolSize: 2, connectTimeoutMs: 60_000, log: context.log });
  try {
    return await settleEpoch(database, context);
  } finally {
    await database.close();
  }
}

test("a database keeps its epoch, however many servers ask for it at once", async () => {
  await using own = await testDatabase();
  const first = await Promise.all([epochAt(own.url), epochAt(own.url), epochAt(own.url)]);
  expect(new Set(first).size).toBe(1);
  expect(await epochAt(own.url)).toBe(first[0]);
});

test("a copy of a database is another one: it has an epoch of its own, and the first keeps its own", async () => {
  await using own = await testDatabase();
  const epoch = await epochAt(own.url);
  const name = `khala_test_copy_${randomUUID().replaceAll("-", "")}`;
  const admin = withDatabase(own.url, "postgres");
  await administer(admin, `CREATE DATABASE ${name} TEMPLATE ${new URL(own.url).pathname.slice(1)}`);
  try {
    const copy = withDatabase(own.url, name);
    const other = await epochAt(copy);
    expect(other).not.toBe(epoch);
    expect(await epochAt(copy)).toBe(other);
    expect(await epochAt(own.url)).toBe(epoch);
  } finally {
    await administer(admin, `DROP DATABASE ${name} WITH (FORCE)`);
  }
});

test("tables that were restored from a dump begin a new epoch", async () => {
  await using own = await testDatabase();
  const epoch = await epochAt(own.url);
  // What a restore does: the same rows in a table that is made anew.
  await own.database.transaction([
    { text: "CREATE TABLE runtime.restored (LIKE runtime.sync_topic_sequences INCLUDING ALL)" },
    { text: "INSERT INTO runtime.restored SELECT * FROM runtime.sync_topic_sequences" },
    { text: "DROP TABLE runtime.sync_topic_sequences" },
    { text: "ALTER TABLE runtime.restored RENAME TO sync_topic_sequences" },
  ]);
  expect(await epochAt(own.url)).not.toBe(epoch);
});

test("a role that may not read the marks does not take the database for another", async () => {
  await using own = await testDatabase();
  const epoch = await epochAt(own.url);
  const role = `khala_test_role_${randomUUID().replaceAll("-", "")}`;
  await administer(own.url, `CREATE ROLE ${role} LOGIN PASSWORD 'limited'`);
  try {
    await administer(own.url, `GRANT USAGE ON SCHEMA runtime TO ${role}`);
    await administer(own.url, `GRANT ALL ON ALL TABLES IN SCHEMA runtime TO ${role}`);
    const url = new URL(own.url);
    url.username = role;
    url.password = "limited";
    expect(await epochAt(url.toString())).toBe(epoch);
    expect(await epochAt(own.url)).toBe(epoch);
  } finally {
    await administer(own.url, `DROP OWNED BY ${role}`);
    await administer(own.url, `DROP ROLE ${role}`);
  }
});

test("a new epoch can be begun by hand, also before any server has started", async () => {
  await using own = await testDatabase();
  const context = await testContext();
  const first = await rotateEpoch(own.database, context);
  expect(await epochAt(own.url)).toBe(first);
  const second = await rotateEpoch(own.database, context);
  expect(second > first).toBe(true);
  expect(await epochAt(own.url)).toBe(second);
});

test("a server that restarts keeps its epoch, and one whose data folder was copied back begins a new one", async () => {
  const folder = await mkdtemp(join(tmpdir(), "khala-epoch-"));
  const dataDir = join(folder, "postgres");
  const onServer = async (): Promise<string> => {
    const settings = ["fsync=off"];
    const server = await startEmbeddedPostgres({
      dataDir,
      clock: systemClock,
      newPassword: randomUUID,
      settings,
    });
    try {
      const context = await testContext();
      const database = openDatabase({
        url: server.url,
        poolSize: 1,
        connectTimeoutMs: 60_000,
        log: context.log,
      });
      await migrate(database, context.log).finally(() => database.close());
      return await epochAt(server.url);
    } finally {
      await server.stop();
    }
  };
  try {
    const epoch = await onServer();
    expect(await onServer()).toBe(epoch);
    // PostgreSQL tells change times in whole seconds: a folder that is copied back within its first one looks the same.
    const second = Math.floor(Date.now() / 1_000);
    await until("the next second", () => Math.floor(Date.now() / 1_000) > second);
    // As faithful as a backup can be: owners and times too.
    await promisify(execFile)("cp", ["-a", dataDir, join(folder, "backup")]);
    await rm(dataDir, { recursive: true });
    await rename(join(folder, "backup"), dataDir);
    expect(await onServer()).not.toBe(epoch);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
