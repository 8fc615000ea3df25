import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, inject, test } from "vitest";
import { clientsFollowRestore } from "./support/restores.ts";

const run = promisify(execFile);
const programs = inject("services")?.postgres?.PROGRAMS;

// The PostgreSQL server goes on meanwhile: nothing but the tables tells that they are not those of before.
test.runIf(programs)("clients end up equal to the server after pg_dump and pg_restore", async () => {
  await using own = await testDatabase();
  const folder = await mkdtemp(join(tmpdir(), "khala-dump-"));
  const file = join(folder, "khala.dump");
  try {
    await clientsFollowRestore(own.url, async () => {
      await run(join(programs!, "pg_dump"), [
        "--schema=runtime",
        "--format=custom",
        `--file=${file}`,
        own.url,
      ]);
      return async () => {
        const how = ["--clean", "--if-exists", "--single-transaction", "--no-owner"];
        const { stderr } = await run(join(programs!, "pg_restore"), [...how, `--dbname=${own.url}`, file]);
        expect(stderr).toBe("");
      };
    });
  } finally {
    await rm(folder, { recursive: true });
  }
});
