import { patiently } from "@khala/test-support/kit/patiently";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import { Models } from "../model.ts";
import { runSummaries } from "../models/runtime.ts";
import { headOf, journalOf, type SyncParts, syncParts } from "../test_support.ts";
import type { DocumentWrite } from "../write/write_statement.ts";
import { startRetention, trimTopic } from "./retention.ts";

const TOPIC = runSummaries.topic;
const DAY = 86_400_000;

const upsert = (id: string, version: number, audience: string[] | null = null): DocumentWrite => ({
  docKey: `run:${id}`,
  docVersion: BigInt(version),
  op: "upsert",
  payload: `{"version":${version}}`,
  org: "acme",
  audience,
});
const remove = (id: string, version: number): DocumentWrite => {
  const { payload: _, ...rest } = upsert(id, version);
  return { ...rest, op: "delete" };
};

/** Writes documents and dates their journal rows back by so many days. */
async function writeBack(
  parts: SyncParts,
  database: Database,
  days: number,
  writes: readonly DocumentWrite[],
) {
  const head = await headOf(database, TOPIC);
  await parts.write(runSummaries, ...writes);
  await database.query({
    text: "UPDATE runtime.sync_stream_events SET inserted_at = now() - $2 * interval '1 day' WHERE topic = 'runtime.run_summaries' AND watermark > $1",
    values: [head, days],
  });
}

const floorOf = async (database: Database) => {
  const text = "SELECT floor FROM runtime.sync_topic_sequences WHERE topic = $1";
  const [row] = await database.query<{ floor: bigint }>({ text, values: [TOPIC] });
  return row!.floor;
};
const rowsOf = (database: Database) =>
  database.query({ text: "SELECT doc_key, deleted FROM runtime.sync_run_summaries ORDER BY doc_key" });

test("removes rows that are old enough, and moves the floor to the last of them", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using parts = await syncParts(database);
  await writeBack(parts, database, 3, [upsert("a", 1), upsert("b", 1, ["ada"]), upsert("a", 2)]);
  await writeBack(parts, database, 1, [upsert("b", 2, ["ada"]), upsert("c", 1)]);
  expect(await trimTopic(database, runSummaries, 2 * DAY)).toBe(3);
  expect(await floorOf(database)).toBe(3n);
  expect((await journalOf(database, TOPIC)).map((row) => row.watermark)).toEqual([4n, 5n]);
  const viewers = "SELECT watermark FROM runtime.sync_stream_viewers";
  expect(await database.query({ text: viewers })).toEqual([{ watermark: 4n }]);
  expect(await rowsOf(database)).toHaveLength(3);
  expect(await trimTopic(database, runSummaries, 2 * DAY)).toBe(0);
  expect(await floorOf(database)).toBe(3n);
});

test("a fully purged topic keeps its floor, and continues its watermarks", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using parts = await syncParts(database);
  await writeBack(parts, database, 3, [upsert("a", 1), upsert("b", 1)]);
  expect(await trimTopic(database, runSummaries, DAY)).toBe(2);
  expect(await journalOf(database, TOPIC)).toEqual([]);
  expect([await floorOf(database), await headOf(database, TOPIC)]).toEqual([2n, 2n]);
  expect(await parts.write(runSummaries, upsert("a", 2))).toEqual([{ watermark: 3n }]);
  expect(await floorOf(database)).toBe(2n);
});

test("removes a tombstone with its journal row, and keeps documents, also recreated ones", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using parts = await syncParts(database);
  await writeBack(parts, database, 3, [upsert("gone", 1), remove("gone", 2), upsert("kept", 1)]);
  await writeBack(parts, database, 3, [upsert("back", 1), remove("back", 2)]);
  await writeBack(parts, database, 1, [upsert("back", 3), upsert("late", 1), remove("late", 2)]);
  await trimTopic(database, runSummaries, 2 * DAY);
  expect(await rowsOf(database)).toEqual([
    { doc_key: "run:back", deleted: false },
    { doc_key: "run:kept", deleted: false },
    { doc_key: "run:late", deleted: true },
  ]);
});

test("one call removes a bounded batch, and moves the floor with each", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using parts = await syncParts(database);
  await writeBack(
    parts,
    database,
    3,
    Array.from({ length: 6_000 }, (_, i) => upsert(`d${i}`, 1)),
  );
  expect(await trimTopic(database, runSummaries, DAY)).toBe(5_000);
  expect(await floorOf(database)).toBe(5_000n);
  expect(await trimTopic(database, runSummaries, DAY)).toBe(1_000);
  expect(await floorOf(database)).toBe(6_000n);
});

test("does not change other topics", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using parts = await syncParts(database);
  await writeBack(parts, database, 3, [upsert("a", 1)]);
  const other = {
    ...runSummaries,
    topic: "runtime.codex_worker_summaries",
    table: "sync_codex_worker_summaries",
  };
  expect(await trimTopic(database, other, DAY)).toBe(0);
  expect(await journalOf(database, TOPIC)).toHaveLength(1);
});

/** Stops before the nth statement of the transaction until it is released. */
function pausedBefore(database: Database, nth: number) {
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const paused: Database = {
    ...database,
    interactive: (fn) =>
      database.interactive((tx) => {
        let count = 0;
        return fn({
          async query(statement) {
            if (++count === nth) {
              reached.resolve();
              await gate.promise;
            }
            return tx.query(statement);
          },
        });
      }),
  };
  return { paused, reached: reached.promise, release: () => gate.resolve() };
}

test("writers succeed at any moment of a purge, also on documents it removes", async () => {
  await using own = await testDatabase({ poolSize: 6 });
  const { database } = own;
  await using parts = await syncParts(database);
  for (let nth = 2; nth <= 5; nth++) {
    const id = `d${nth}`;
    await writeBack(parts, database, 3, [upsert(id, 1), remove(id, 2)]);
    const { paused, reached, release } = pausedBefore(database, nth);
    const trimming = trimTopic(paused, runSummaries, DAY);
    await reached;
    let answered = false;
    const writing = parts.write(runSummaries, upsert(id, 3)).finally(() => {
      answered = true;
    });
    await patiently(async () => {
      const waiting =
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
      if (!answered) expect(await database.query({ text: waiting })).not.toEqual([]);
    });
    release();
    expect(await Promise.all([trimming, writing])).toEqual([
      expect.any(Number),
      [{ watermark: expect.any(BigInt) }],
    ]);
    expect(await rowsOf(database)).toContainEqual({ doc_key: `run:${id}`, deleted: false });
  }
});

test("purging and writing at full speed fails nobody, and leaves no gap above the floor", async () => {
  await using own = await testDatabase({ poolSize: 8 });
  const { database } = own;
  await using parts = await syncParts(database);
  let writing = true;
  const trimming = (async () => {
    while (writing) await trimTopic(database, runSummaries, 0);
  })();
  await Promise.all(
    Array.from({ length: 20 }, async (_, writer) => {
      for (let version = 1; version <= 40; version++) {
        const write = version % 3 === 0 ? remove(`w${writer}`, version) : upsert(`w${writer}`, version);
        expect(await parts.write(runSummaries, write)).toEqual([{ watermark: expect.any(BigInt) }]);
      }
    }),
  );
  writing = false;
  await trimming;
  const head = await headOf(database, TOPIC);
  expect(head).toBe(800n);
  const left = (await journalOf(database, TOPIC)).map((row) => row.watermark);
  const floor = await floorOf(database);
  expect(left).toEqual(Array.from({ length: Number(head - floor) }, (_, i) => floor + BigInt(i) + 1n));
});

test("the background job trims every topic while it is active, and reports each pass", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using parts = await syncParts(database);
  await writeBack(parts, database, 3, [upsert("a", 1)]);
  let active = false;
  let looked = 0;
  const retention = startRetention(database, parts.context, {
    models: new Models([runSummaries]),
    keepMs: DAY,
    everyMs: 10,
    metrics: parts.metrics,
    inline: true,
    onExpired: () => {},
    active() {
      looked++;
      return active;
    },
  });
  await patiently(() => expect(looked).toBeGreaterThan(2));
  expect(await floorOf(database)).toBe(0n);
  active = true;
  await patiently(async () => expect(await floorOf(database)).toBe(1n));
  await retention.stop();
  expect(await parts.context.telemetry.scrape()).toMatch(
    /khala_sync_retention_runs_total\{[^}]*outcome="ok"[^}]*\} [1-9]/,
  );
});
