import { randomUUID } from "node:crypto";
import { testContext } from "@khala/test-support/kit/context";
import { administer } from "@khala/test-support/postgres/service";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import { openDatabase } from "../../database/database.ts";
import { openJournal } from "./journal.ts";
import { readStarts, recordStart, rotateEpoch } from "./starts.ts";

const TOPIC = "runtime.run_summaries";

async function start(database: Database): Promise<string> {
  const context = await testContext();
  return database.interactive((tx) => recordStart(tx, context));
}

function setHead(database: Database, head: number): Promise<unknown> {
  return database.query({
    text: `INSERT INTO runtime.sync_topic_sequences (topic, next_watermark) VALUES ($1, $2)
      ON CONFLICT (topic) DO UPDATE SET next_watermark = excluded.next_watermark`,
    values: [TOPIC, head],
  });
}

test("covers positions of a start up to the next one on another PostgreSQL", async () => {
  await using own = await testDatabase();
  const { database } = own;
  const first = await start(database);
  await setHead(database, 4);
  const same = await start(database);
  await setHead(database, 5);
  // From here on it is another PostgreSQL server, such as a restored one.
  await database.query({ text: "UPDATE runtime.sync_starts SET postgres = 'earlier'" });
  const second = await start(database);
  await setHead(database, 9);
  const starts = await readStarts(database);
  const covered = [5n, 6n, 9n].map((watermark) => [
    starts.covers(first, TOPIC, watermark),
    starts.covers(same, TOPIC, watermark),
    starts.covers(second, TOPIC, watermark),
  ]);
  expect(covered).toEqual([
    [true, true, true],
    [false, false, true],
    [false, false, true],
  ]);
  expect(starts.covers(randomUUID(), TOPIC, 0n)).toBe(false);
});

test("treats a table recreated on a running PostgreSQL, as by pg_restore, as another PostgreSQL", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await setHead(database, 4);
  const before = await start(database);
  await database.interactive(async (tx) => {
    await tx.query({ text: "CREATE TEMPORARY TABLE dump ON COMMIT DROP AS TABLE runtime.sync_starts" });
    await tx.query({ text: "TRUNCATE runtime.sync_starts" });
    await tx.query({ text: "INSERT INTO runtime.sync_starts OVERRIDING SYSTEM VALUE TABLE dump" });
  });
  await start(database);
  await setHead(database, 9);
  const starts = await readStarts(database);
  expect([4n, 5n].map((watermark) => starts.covers(before, TOPIC, watermark))).toEqual([true, false]);
});

test("records concurrent starts in the order of their heads", async () => {
  await using own = await testDatabase();
  await setHead(own.database, 3);
  const ids = await Promise.all(Array.from({ length: 8 }, () => start(own.database)));
  const starts = await readStarts(own.database);
  for (const id of ids) expect(starts.covers(id, TOPIC, 3n)).toBe(true);
});

test("keeps the last thousand starts", async () => {
  await using own = await testDatabase();
  const first = await start(own.database);
  const second = await start(own.database);
  await own.database.query({
    text: "INSERT INTO runtime.sync_starts (id, postgres, heads) SELECT 'start ' || n, '1', '{}' FROM generate_series(1, 998) n",
  });
  expect((await readStarts(own.database)).knows(first)).toBe(true);
  await start(own.database);
  await start(own.database);
  const starts = await readStarts(own.database);
  expect([starts.knows(first), starts.knows(second)]).toEqual([false, true]);
});

test("rotating the epoch by hand forgets all starts", async () => {
  await using own = await testDatabase();
  const before = await start(own.database);
  const epoch = await rotateEpoch(own.database, await testContext());
  const starts = await readStarts(own.database);
  expect([starts.knows(before), starts.knows(epoch)]).toEqual([false, true]);
  expect(await own.database.query({ text: "SELECT epoch FROM runtime.sync_epoch" })).toEqual([{ epoch }]);
});

test("an ordinary role can record a start", async () => {
  await using own = await testDatabase();
  const role = `khala_test_role_${randomUUID().replaceAll("-", "")}`;
  await administer(own.url, `CREATE ROLE ${role} LOGIN PASSWORD 'limited'`);
  try {
    await administer(own.url, `GRANT USAGE ON SCHEMA runtime TO ${role}`);
    await administer(
      own.url,
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA runtime TO ${role}`,
    );
    const url = new URL(own.url);
    url.username = role;
    url.password = "limited";
    const { log } = await testContext();
    const database = openDatabase({ url: url.toString(), poolSize: 1, log });
    const id = await start(database).finally(() => database.close());
    expect((await readStarts(own.database)).knows(id)).toBe(true);
  } finally {
    await administer(own.url, `DROP OWNED BY ${role}`);
    await administer(own.url, `DROP ROLE ${role}`);
  }
});

test("an app without models has the epoch of its start", async () => {
  await using own = await testDatabase();
  const { database } = own;
  const epoch = await start(database);
  await database.query({ text: "DELETE FROM runtime.sync_topic_sequences" });
  expect(await openJournal(database).heads()).toEqual({ epoch, topics: new Map() });
});
