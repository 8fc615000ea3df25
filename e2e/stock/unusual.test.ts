import { randomUUID } from "node:crypto";
import { administer } from "@khala/test-support/postgres/service";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { describe, expect, test } from "vitest";
import { examine, startDemo, stock, useEveryPlane } from "./support.ts";

/** A database of a new role that has settings of its own. */
async function databaseOf(settings: Readonly<Record<string, string>>) {
  await using undo = new AsyncDisposableStack();
  const role = `role_${randomUUID().replaceAll("-", "")}`;
  await administer(stock.ADMIN_URL!, `CREATE ROLE ${role} LOGIN PASSWORD 'sesame'`);
  undo.defer(() => administer(stock.ADMIN_URL!, `DROP ROLE ${role}`));
  const database = undo.use(await testDatabase({ empty: true }));
  const url = new URL(database.url);
  await administer(database.url, `GRANT CREATE ON DATABASE "${url.pathname.slice(1)}" TO ${role}`);
  for (const [name, value] of Object.entries(settings))
    await administer(stock.ADMIN_URL!, `ALTER ROLE ${role} SET ${name} = ${value}`);
  Object.assign(url, { username: role, password: "sesame" });
  const made = undo.move();
  return { url: url.toString(), [Symbol.asyncDispose]: () => made.disposeAsync() };
}

describe.runIf(stock.ADMIN_URL)("a role with unusual settings", () => {
  test("every plane works, and doctor finds no problem", async () => {
    await using own = await databaseOf({
      datestyle: "'SQL, DMY'",
      intervalstyle: "sql_standard",
      timezone: "'Pacific/Apia'",
      bytea_output: "escape",
      extra_float_digits: "-15",
      standard_conforming_strings: "off",
      array_nulls: "off",
      search_path: "nowhere",
      client_encoding: "latin1",
      default_transaction_isolation: "serializable",
    });
    await useEveryPlane(own.url);
    const { database, schema, clock } = await examine(own.url);
    expect({ database, schema, clock }).toEqual({
      database: expect.stringMatching(/^ok/),
      schema: expect.stringMatching(/^ok/),
      clock: expect.stringMatching(/^ok/),
    });
  });

  test("refuses to start where nothing can be written, and doctor says what to do", async () => {
    await using own = await databaseOf({ default_transaction_read_only: "on" });
    await expect(startDemo(own.url)).rejects.toThrow(/accepts no writes.*ALTER ROLE role_\w+ SET/);
    expect((await examine(own.url)).database).toMatch(
      /^problem: .*accepts no writes.*ALTER ROLE role_\w+ SET/,
    );
  });
});

test("doctor reports a schema `runtime` that Khala did not make", async () => {
  await using other = await testDatabase({ empty: true });
  await administer(other.url, "CREATE SCHEMA runtime");
  await administer(other.url, "CREATE TABLE runtime.events ()");
  expect((await examine(other.url)).schema).toMatch(/^problem: .*not Khala's: it contains events.*rename/);
});
