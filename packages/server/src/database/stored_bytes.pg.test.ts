import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Context } from "../kit/context.ts";
import type { Database } from "./database.ts";
import { type OpenStoredBytes, openStoredBytes } from "./stored_bytes.ts";

let shared: TestDatabase;
let context: Context;
beforeAll(async () => {
  shared = await testDatabase();
});
beforeEach(async () => {
  await query("TRUNCATE runtime.org_usage, runtime.durable_streams, runtime.board_artifacts CASCADE");
  context = await testContext({ clock: new ManualClock() });
});
afterAll(() => shared[Symbol.asyncDispose]());

const query = (text: string) => shared.database.query({ text });

async function open(limit: number, database: Database = shared.database) {
  const stored = openStoredBytes(database, context, {
    limit,
    tables: [
      { plane: "durable_streams", table: "durable_streams", bytes: "t.tail" },
      { plane: "blackboard", table: "board_artifacts", bytes: "octet_length(t.body)" },
    ],
    blocks: 1,
  });
  // After its first sync the clock triggers the next one.
  await stored.sync();
  return Object.assign(stored, { [Symbol.asyncDispose]: () => stored.stop() });
}

/** A recount pauses after each slice. */
async function recounted(stored: OpenStoredBytes): Promise<void> {
  let isDone = false;
  const counting = stored.recount().finally(() => {
    isDone = true;
  });
  while (!isDone) {
    await new Promise(setImmediate);
    await (context.clock as ManualClock).advance(50);
  }
  await counting;
}

const inUse = async (org: string) => (await context.quotas.of(org))[0]!.inUse;
const full = expect.objectContaining({
  code: "limit_exceeded",
  details: { retry_after_ms: 60_000, field: "stored_bytes" },
});

test("refuses writes of an org at its limit on every server, and accepts those of others", async () => {
  await using one = await open(100);
  await using two = await open(100);
  one.take("acme", "blackboard", 60);
  two.take("acme", "durable_streams", 60);
  await one.sync();
  await two.sync();
  expect(() => two.take("acme", "blackboard", 1)).toThrow(full);
  one.take("zeta", "blackboard", 1);
  // The other server learns of it with its next sync.
  one.take("acme", "blackboard", 0);
  await one.sync();
  expect(() => one.take("acme", "blackboard", 1)).toThrow(/KHALA_MAX_STORED_BYTES_PER_ORG/);
  expect(await context.quotas.ofAll(10)).toMatchObject([
    { org: "acme", name: "stored_bytes", limit: 100, inUse: 120, rejected: 1 },
    { org: "zeta", inUse: 1, rejected: 0 },
  ]);
});

test("counts stored bytes at once on the server that stores them", async () => {
  await using stored = await open(100);
  stored.take("acme", "blackboard", 100);
  expect(await inUse("acme")).toBe(100);
  expect(() => stored.take("acme", "blackboard", 1)).toThrow(full);
});

test("a limit of 0 means no limit, and bytes are still counted", async () => {
  await using stored = await open(0);
  stored.take("acme", "blackboard", 1_000);
  stored.take("acme", "blackboard", 1_000);
  await stored.sync();
  expect(await inUse("acme")).toBe(2_000);
});

test("a recount includes deletions and background writes, and keeps bytes added meanwhile", async () => {
  await query(`INSERT INTO runtime.durable_streams (org_id, path, owner, content_type, tail)
    SELECT CASE WHEN i % 2 = 0 THEN 'acme' ELSE 'zeta' END, repeat('p', 200) || i, 'ada', 'text/plain', 10
    FROM generate_series(1, 1000) i`);
  let whileCounting = async () => {};
  await using stored = await open(1_000_000, {
    ...shared.database,
    async query(statement) {
      const rows = await shared.database.query(statement);
      if (statement.text.includes("t.ctid")) await whileCounting();
      return rows as never;
    },
  });
  stored.take("acme", "durable_streams", 900_000);
  stored.take("gone", "blackboard", 7);
  await stored.sync();
  await recounted(stored);
  expect([await inUse("acme"), await inUse("zeta"), await inUse("gone")]).toEqual([5_000, 5_000, 0]);

  await query("DELETE FROM runtime.durable_streams WHERE org_id = 'zeta'");
  whileCounting = async () => {
    whileCounting = async () => {};
    stored.take("zeta", "durable_streams", 3);
    await stored.sync();
  };
  await recounted(stored);
  expect([await inUse("acme"), await inUse("zeta")]).toEqual([5_000, 3]);
});

test("accepts an org's writes again after a recount finds less", async () => {
  await using stored = await open(100);
  stored.take("acme", "blackboard", 200);
  await stored.sync();
  expect(() => stored.take("acme", "blackboard", 1)).toThrow(full);
  await recounted(stored);
  expect(() => stored.take("acme", "blackboard", 1)).toThrow(full);
  await stored.sync();
  stored.take("acme", "blackboard", 1);
});

test("retries a failed update later, and writes the last bytes when it stops", async () => {
  let failing = true;
  const flaky: Database = {
    ...shared.database,
    async query(statement) {
      if (failing) throw new Error("away");
      return shared.database.query(statement);
    },
  };
  const stored = await open(100, flaky);
  stored.take("acme", "blackboard", 5);
  await expect(stored.sync()).rejects.toThrow("away");
  failing = false;
  await stored.stop();
  expect(await inUse("acme")).toBe(5);
});

test("one server makes a due recount, and schedules the next", async () => {
  await query(
    "INSERT INTO runtime.durable_streams (org_id, path, owner, content_type, tail) VALUES ('acme', '/a', 'ann', 'text/plain', 70)",
  );
  await query(
    "INSERT INTO runtime.org_usage_recount (next_at) VALUES (now()) ON CONFLICT (one) DO UPDATE SET next_at = now()",
  );
  await using _ = await open(100);
  await using __ = await open(100);
  const nextAt = () =>
    query(
      "SELECT next_at > now() AND next_at < now() + interval '59 minutes' AS is_set FROM runtime.org_usage_recount",
    );
  await until("the next one is set", async () => {
    await (context.clock as ManualClock).advance(50);
    return (await nextAt())[0]!.is_set;
  });
  expect(await query("SELECT bytes::int FROM runtime.org_usage WHERE org_id = 'acme'")).toEqual([
    { bytes: 70 },
  ]);
});

test("a recount adds what a plane stores elsewhere", async () => {
  await using stored = await open(100);
  const elsewhere = new Map([["acme", 60]]);
  stored.countAlso("blackboard", () => elsewhere);
  await recounted(stored);
  expect(await inUse("acme")).toBe(60);
  elsewhere.set("acme", 10);
  await recounted(stored);
  expect(await inUse("acme")).toBe(10);
});
