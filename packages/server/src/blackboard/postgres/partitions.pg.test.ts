import { randomUUID } from "node:crypto";
import { Heard, makeTestArtifact, makeTestTask, routeByTags } from "@khala/testing/conformance/board/support";
import { done, Worker } from "@khala/testing/conformance/board/worker";
import { testContext } from "@khala/testing/kit/context";
import { until } from "@khala/testing/kit/until";
import { testDatabase } from "@khala/testing/postgres/test_database";
import { expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import { uuidv7 } from "../../kit/ids.ts";
import { openPostgresBoard } from "./open_board.ts";
import { makePartitions, sweepBoard } from "./partitions.ts";

const DAY = 86_400_000;
const KEEP = { retentionMs: 7 * DAY, deadRetentionMs: 30 * DAY };

/** An id of version 7 of another day. */
const idOf = (time: number) => uuidv7({ now: () => time, after: () => () => {} })();

async function partitionOf(database: Database, id: string): Promise<string> {
  const text = "SELECT tableoid::regclass::text AS name FROM runtime.board_artifacts WHERE id = $1";
  const [row] = await database.query<{ name: string }>({ text, values: [id] });
  return row!.name;
}

async function opened(database: Database, agents = ["one"]) {
  const heard = new Heard();
  const board = await openPostgresBoard(database, await testContext(), {
    agents: agents.map((agent) => ({ agent, order: "key", strict: false })),
    route: routeByTags,
    routes: true,
    observer: heard,
    wakeups: { send() {} },
    // Only the tests sweep.
    retentionMs: 3_650 * DAY,
    deadRetentionMs: 3_650 * DAY,
  });
  return { board, heard, [Symbol.asyncDispose]: () => board.stop() };
}

test("an id of version 7 is in the partition of its day, and any other id in the default one", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using server = await opened(database);
  const [ours, theirs] = [makeTestArtifact(), makeTestArtifact({ id: randomUUID() })];
  await server.board.publish([ours, theirs]);
  const today = new Date().toISOString().slice(0, 10).replaceAll("-", "");
  expect(await partitionOf(database, ours.id)).toBe(`runtime.board_artifacts_${today}`);
  expect(await partitionOf(database, theirs.id)).toBe("runtime.board_artifacts_other");
  expect(await server.board.get(theirs.id)).toEqual(theirs);
  expect(await server.board.publish([theirs, ours])).toEqual(["duplicate", "duplicate"]);
});

test("what is older than the retention is dropped by the day, and the rest stays", async () => {
  await using own = await testDatabase();
  const { database } = own;
  const now = Date.now();
  await makePartitions(database, now - 10 * DAY);
  await using server = await opened(database);
  const old = makeTestArtifact({ id: idOf(now - 10 * DAY) });
  const recent = makeTestArtifact();
  await server.board.publish([old, recent]);
  const { dropped } = await sweepBoard(database, now, KEEP);
  expect(dropped).toHaveLength(3);
  expect(await server.board.get(old.id)).toBeUndefined();
  expect(await server.board.get(recent.id)).toEqual(recent);
  expect((await sweepBoard(database, now, KEEP)).dropped).toEqual([]);
});

test("a day stays while a task of it is open, and goes when that is settled", async () => {
  await using own = await testDatabase();
  const { database } = own;
  const now = Date.now();
  await makePartitions(database, now - 20 * DAY);
  await makePartitions(database, now - 10 * DAY);
  await using server = await opened(database);
  const { board, heard } = server;
  const routed = makeTestArtifact({ id: idOf(now - 10 * DAY), to: "one", payload: "routed" });
  await board.publish([routed]);
  const given = makeTestArtifact({ payload: "enqueued" });
  await board.enqueue([makeTestTask("one", given, { id: idOf(now - 20 * DAY) })]);
  // Two of the three days of each have nothing that is open.
  expect((await sweepBoard(database, now, KEEP)).dropped).toHaveLength(4);
  expect(await board.get(routed.id)).toEqual(routed);

  const worker = new Worker("one", () => done());
  board.consume(worker);
  await until("both are settled", () => heard.settlements.length === 2);
  expect(worker.payloads().toSorted()).toEqual(["enqueued", "routed"]);
  expect((await sweepBoard(database, now, KEEP)).dropped).toHaveLength(2);
  expect(await board.get(routed.id)).toBeUndefined();
});

test("what was published for a day that had no partition yet moves into it when that is made", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using server = await opened(database);
  const later = Date.now() + 30 * DAY;
  const early = makeTestArtifact({ id: idOf(later), payload: "early" });
  await server.board.publish([early]);
  expect(await partitionOf(database, early.id)).toBe("runtime.board_artifacts_other");
  await makePartitions(database, later);
  expect(await partitionOf(database, early.id)).toMatch(/board_artifacts_\d{8}$/);
  expect(await server.board.get(early.id)).toEqual(early);
});

test("old dead letters are removed, and newer ones stay", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using server = await opened(database);
  await server.board.publish([1, 2, 3].map(() => makeTestArtifact({ breaks: "one" })));
  await database.query({
    text: `UPDATE runtime.board_dead_letters SET failed_at = now() - interval '31 days'
      WHERE seq = (SELECT min(seq) FROM runtime.board_dead_letters)`,
  });
  expect((await sweepBoard(database, Date.now(), KEEP)).deadLetters).toBe(1);
  expect((await server.board.deadLetters("one", { limit: 10 })).deadLetters).toHaveLength(2);
});

test("processes that start at once make each partition once, and none of them fails", async () => {
  await using store = await testDatabase({ poolSize: 10 });
  const { database } = store;
  for (let round = 0; round < 10; round++) {
    const now = Date.now() + (100 + 10 * round) * DAY;
    await Promise.all(Array.from({ length: 10 }, () => makePartitions(database, now)));
    expect(await partitionsFrom(database, now)).toHaveLength(6);
  }
});

/** The partitions of a day and of the two after it. */
async function partitionsFrom(database: Database, now: number): Promise<string[]> {
  const days = [0, 1, 2].map((day) =>
    new Date(now + day * DAY).toISOString().slice(0, 10).replaceAll("-", ""),
  );
  const rows = await database.query<{ name: string }>({
    text: "SELECT relname AS name FROM pg_class WHERE relispartition AND relkind = 'r' AND right(relname, 8) = ANY ($1)",
    values: [days],
  });
  return rows.map(({ name }) => name);
}

test("what is in no day goes when it is older than the retention, unless it is open", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using server = await opened(database);
  const { board, heard } = server;
  const other = (to?: string) => makeTestArtifact({ id: randomUUID(), ...(to && { to }) });
  const [old, open, fresh] = [other(), other("one"), other()];
  await board.publish([old, open]);
  await board.enqueue([makeTestTask("one", makeTestArtifact(), { id: randomUUID() })]);
  for (const table of ["board_artifacts", "board_tasks"])
    await database.query({ text: `UPDATE runtime.${table} SET stored_at = now() - interval '8 days'` });
  await board.publish([fresh]);
  expect((await sweepBoard(database, Date.now(), KEEP)).others).toBe(1);
  expect(await board.get(old.id)).toBeUndefined();

  const worker = new Worker("one");
  const service = board.consume(worker);
  await until("both are settled", () => heard.settlements.length === 2);
  await service.stop();
  expect((await sweepBoard(database, Date.now(), KEEP)).others).toBe(2);
  expect(await board.get(open.id)).toBeUndefined();
  expect(await board.get(fresh.id)).toEqual(fresh);
});

test("a task whose artifact is gone becomes a dead letter, and those that were claimed with it are worked on", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await using server = await opened(database);
  const { board, heard } = server;
  const artifacts = ["a", "a", "b", "b"].map((key, payload) =>
    makeTestArtifact({ to: "one", partition_key: key, payload }),
  );
  await board.publish(artifacts);
  // The head of one lane, and one behind the head of the other.
  for (const lost of [artifacts[0]!, artifacts[3]!])
    await database.query({ text: "DELETE FROM runtime.board_artifacts WHERE id = $1", values: [lost.id] });
  const worker = new Worker("one");
  board.consume(worker);
  const letters = async () => (await board.deadLetters("one", { limit: 10 })).deadLetters;
  await until(
    "all are settled",
    async () => (await letters()).length === 2 && heard.settlements.length === 2,
  );
  expect(worker.payloads().toSorted()).toEqual([1, 2]);
  expect((await letters()).map(({ failure }) => failure.class)).toEqual([
    "ArtifactMissing",
    "ArtifactMissing",
  ]);
  expect(await board.counts()).toEqual([{ agent: "one", waiting: 0, running: 0, dead: 2 }]);
});

test("a day that only grows is not vacuumed for it, and few of its rows are looked at for statistics", async () => {
  await using own = await testDatabase();
  await makePartitions(own.database, Date.now());
  const rows = await own.database.query<{ days: bigint; spared: bigint; most: number; body: number }>({
    text: `SELECT count(DISTINCT c.oid) AS days,
        count(DISTINCT c.oid) FILTER (WHERE c.reloptions @> '{autovacuum_vacuum_insert_threshold=-1}') AS spared,
        max(coalesce(a.attstattarget, 100)) AS most, max(a.attstattarget) FILTER (WHERE a.attname = 'body') AS body
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
      WHERE i.inhparent IN ('runtime.board_artifacts'::regclass, 'runtime.board_tasks'::regclass)
        AND c.relname NOT LIKE '%other' AND NOT a.attisdropped`,
  });
  const [{ days, spared, most, body }] = rows as [(typeof rows)[0]];
  expect(days).toBeGreaterThan(1n);
  expect([spared, most, body]).toEqual([days, 10, 0]);
});

test("the ids of a day's batches are stored as they are", async () => {
  await using own = await testDatabase();
  await makePartitions(own.database, Date.now());
  const rows = await own.database.query<{ storage: string; tables: bigint }>({
    text: `SELECT a.attstorage AS storage, count(*) AS tables FROM pg_attribute a JOIN pg_inherits i ON i.inhrelid = a.attrelid
      WHERE i.inhparent = 'runtime.board_tasks'::regclass AND a.attname = 'artifact_ids' GROUP BY 1`,
  });
  expect(rows.map(({ storage }) => storage)).toEqual(["e"]);
  expect(rows[0]!.tables).toBeGreaterThan(1n);
});
