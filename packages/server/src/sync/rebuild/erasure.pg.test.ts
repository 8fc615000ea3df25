import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { openDatabase } from "../../database/database.ts";
import { ERASED } from "../../events/stream.ts";
import { eraseEvents } from "./erasure.ts";

const APPEND = `SELECT * FROM runtime.append_in_order(
  ARRAY[ROW('run', 'r1', NULL, 'acme', 'service', NULL, 1, false)::runtime.append_request],
  ARRAY[ROW(1, 1, $1, 'run.step', '{"name":"a step"}')::runtime.append_event])`;

test("erases an event that a service appends to the subject's stream meanwhile", async () => {
  await using own = await testDatabase({ poolSize: 4 });
  const { database } = own;
  await database.query({ text: APPEND.replace("'service'", "'ada'"), values: ["e1"] });
  const appended = Promise.withResolvers<void>();
  const commit = Promise.withResolvers<void>();
  const { log } = await testContext();
  const other = openDatabase({ url: own.url, poolSize: 1, log });
  const append = other.interactive(async (tx) => {
    await tx.query({ text: APPEND, values: ["e2"] });
    appended.resolve();
    await commit.promise;
  });
  await appended.promise;
  const step = { org: "acme", subject: "ada", after: 0n, dryRun: false };
  const erasing = eraseEvents(database, [], step, true);
  await until("the erasure waits for the append", async () => {
    const text =
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    return (await database.query({ text })).length > 0;
  });
  commit.resolve();
  await append;
  await other.close();
  expect(await erasing).toMatchObject({ events: 2, next: undefined });
  const left = "SELECT owner, actor, type FROM runtime.events ORDER BY position";
  const redacted = { owner: "", actor: "", type: ERASED };
  expect(await database.query({ text: left })).toEqual([redacted, redacted]);

  // What comes afterwards is nobody's.
  await database.query({ text: APPEND, values: ["e3"] });
  expect((await database.query({ text: left })).at(-1)).toMatchObject({ owner: "", actor: "service" });
});
