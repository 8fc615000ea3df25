import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PostgresServer } from "@khala/test-support/postgres/server";
import { runCli } from "@khala/test-support/processes/run_cli";
import { expect, test } from "vitest";
import { type Backup, clientsFollowRestore } from "./support/restores.ts";

const BACKUPS: Readonly<Record<string, (postgres: PostgresServer, folder: string) => Backup>> = {
  "a folder that was copied back": (postgres) => async () => {
    const copy = await postgres.backUp();
    return () => postgres.restore(copy);
  },
  "a folder that rsync put back, or the snapshot of a volume": (postgres) => async () => {
    const copy = await postgres.backUp();
    return () => postgres.rewind(copy);
  },
  "a copy of a server that crashed": (postgres) => async () => {
    await postgres.crash();
    const copy = await postgres.copy();
    await postgres.start();
    return () => postgres.restore(copy);
  },
  "a standby that was behind": (postgres) => async () => {
    const standby = await postgres.addStandby();
    await standby.detach();
    return () => standby.promote();
  },
  "recovery to a point in time": (postgres) => async (write) => {
    const copy = await postgres.baseBackup();
    await write("replayed");
    await postgres.database.query({ text: "SELECT pg_create_restore_point('before')" });
    return () => postgres.recover(copy, "before");
  },
  "khala restore": (postgres, folder) => async () => {
    const file = join(folder, "khala.backup");
    const env = { DATABASE_URL: postgres.url };
    expect(await runCli(["backup", file], env)).toMatchObject({ code: 0 });
    return async () => {
      // Its own sessions would look like a server's.
      await postgres.endSessions();
      expect(await runCli(["restore", file, "--replace"], env)).toMatchObject({ code: 0 });
    };
  },
};

test.for(Object.entries(BACKUPS))("clients end up equal to the server after %s", async ([, backup]) => {
  await using postgres = await PostgresServer.start();
  const folder = await mkdtemp(join(tmpdir(), "khala-restores-"));
  try {
    await clientsFollowRestore(postgres.url, backup(postgres, folder));
  } finally {
    await rm(folder, { recursive: true });
  }
});
