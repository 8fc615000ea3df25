import { startPgBouncer } from "@khala/test-support/postgres/pgbouncer";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { openDatabase } from "../../packages/server/src/database/database.ts";
import { examine, pooler, startDemo, useEveryPlane } from "./support.ts";

describe.runIf(pooler)("PgBouncer", () => {
  test("every plane works in session mode, and doctor tells the pooler from the server", async () => {
    await using database = await testDatabase();
    await using bouncer = await startPgBouncer(pooler!.COMMAND!, database.url, { pool_mode: "session" });
    await useEveryPlane(bouncer.url);
    expect((await examine(bouncer.url)).database).toMatch(
      /^ok: PgBouncer in session mode in front of PostgreSQL \d/,
    );
    expect((await examine(database.url)).database).toMatch(/^ok: PostgreSQL \d\S+ .*answers$/);
  });

  test("a session through it has the time limits of a direct one", async () => {
    await using database = await testDatabase();
    await using bouncer = await startPgBouncer(pooler!.COMMAND!, database.url, { pool_mode: "session" });
    const limits = {
      text: `SELECT current_setting('statement_timeout') AS statement,
        current_setting('idle_in_transaction_session_timeout') AS idle, current_setting('jit') AS jit`,
    };
    const pooled = openDatabase({ url: bouncer.url, poolSize: 1, log: pino({ level: "silent" }) });
    try {
      const found = await pooled.query(limits);
      expect(found).toEqual([{ statement: "30s", idle: "15s", jit: "off" }]);
      expect(await database.database.query(limits)).toEqual(found);
    } finally {
      await pooled.close();
    }
  });

  test.for([
    { pool_mode: "transaction" },
    { pool_mode: "transaction", default_pool_size: 1 },
    { pool_mode: "transaction", min_pool_size: 5, server_round_robin: 1 },
    { pool_mode: "statement" },
  ])("refuses to start with shared sessions, and names the setting: %o", async (settings) => {
    await using database = await testDatabase();
    await using bouncer = await startPgBouncer(pooler!.COMMAND!, database.url, settings);
    await expect(startDemo(bouncer.url)).rejects.toThrow(
      /shares sessions between clients.*Set `pool_mode = session`/,
    );
    expect((await examine(bouncer.url)).database).toMatch(
      /^problem: PgBouncer in transaction mode in front of PostgreSQL \d.*`pool_mode = session`/,
    );
  });
});
