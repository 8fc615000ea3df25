import { randomUUID } from "node:crypto";
import { administer } from "@khala/test-support/postgres/service";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { runCli } from "@khala/test-support/processes/run_cli";
import { describe, expect, test } from "vitest";
import { examine, startDemo, stock, useEveryPlane } from "./support.ts";

/** An empty database, with a role that may create a schema in it and one that may only connect. */
async function twoRoles() {
  await using undo = new AsyncDisposableStack();
  const suffix = randomUUID().replaceAll("-", "");
  const roles = { owner: `owner_${suffix}`, server: `server_${suffix}` };
  for (const role of Object.values(roles)) {
    await administer(stock.ADMIN_URL!, `CREATE ROLE ${role} LOGIN PASSWORD 'sesame'`);
    undo.defer(() => administer(stock.ADMIN_URL!, `DROP ROLE ${role}`));
  }
  const database = undo.use(await testDatabase({ empty: true }));
  const url = new URL(database.url);
  await administer(database.url, `GRANT CREATE ON DATABASE "${url.pathname.slice(1)}" TO ${roles.owner}`);
  const as = (role: string) => {
    Object.assign(url, { username: role, password: "sesame" });
    return url.toString();
  };
  const made = undo.move();
  return {
    ...roles,
    ownerUrl: as(roles.owner),
    serverUrl: as(roles.server),
    [Symbol.asyncDispose]: () => made.disposeAsync(),
  };
}

describe.runIf(stock.ADMIN_URL)("a role that migrates, and a role that serves", () => {
  test("the serving role needs no right to create: `khala migrate --grant` is enough for every plane", async () => {
    await using roles = await twoRoles();
    const advice = `khala migrate --app <file> --grant ${roles.server}`;
    await expect(startDemo(roles.serverUrl)).rejects.toThrow(advice);
    expect((await examine(roles.serverUrl)).schema).toMatch(
      /^problem: not created yet, .* may not create it/,
    );

    const migrated = await runCli(["migrate"], { DATABASE_URL: roles.ownerUrl });
    expect(migrated).toMatchObject({ code: 0, err: "" });
    await expect(startDemo(roles.serverUrl)).rejects.toThrow(advice);
    expect((await examine(roles.serverUrl)).schema).toMatch(/^problem: it cannot be read: permission denied/);

    const granted = await runCli(["migrate", "--grant", roles.server], { DATABASE_URL: roles.ownerUrl });
    expect(granted).toMatchObject({ code: 0, out: expect.stringContaining(`${roles.server} may use`) });
    await useEveryPlane(roles.serverUrl);
    expect((await examine(roles.serverUrl)).schema).toMatch(/^ok: version/);
    for (const sql of [
      "CREATE TABLE runtime.more ()",
      "DROP TABLE runtime.sync_lightning_control_plane",
      "UPDATE runtime.schema_migrations SET version = 0",
    ])
      await expect(administer(roles.serverUrl, sql), sql).rejects.toMatchObject({ code: "42501" });
  });

  test.for([
    [
      "a function has changed",
      "UPDATE runtime.schema_files SET hash = '' WHERE file = 'functions/trim_log.sql'",
    ],
    ["a model is new", "DROP TABLE runtime.sync_lightning_control_plane"],
  ])("when %s, it says to run `khala migrate`, and starts after that", async ([, change]) => {
    await using roles = await twoRoles();
    const migrate = () => runCli(["migrate", "--grant", roles.server], { DATABASE_URL: roles.ownerUrl });
    await migrate();
    await administer(roles.ownerUrl, change!);
    await expect(startDemo(roles.serverUrl)).rejects.toThrow(
      `The schema is not current, and the role ${roles.server} may not change it`,
    );
    await migrate();
    await (await startDemo(roles.serverUrl)).stop();
  });
});
