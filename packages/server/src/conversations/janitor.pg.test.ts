import { topicForConv } from "@khala/contracts";
import { testContext } from "@khala/test-support/kit/context";
import { patiently } from "@khala/test-support/kit/patiently";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Database } from "../database/database.ts";
import type { Context } from "../kit/context.ts";
import { type JanitorOptions, startJanitor } from "./janitor.ts";
import type { Log } from "./log/log.ts";
import { openPostgresLog } from "./log/postgres/postgres_log.ts";
import { conversationMetrics } from "./metrics.ts";

const DAY = 86_400_000;
const PLENTY = { entries: 1_000, bytes: 1 << 20 };

let own: TestDatabase;
let database: Database;
let context: Context;
let log: Log;
beforeAll(async () => {
  own = await testDatabase();
  database = own.database;
  context = await testContext();
  log = openPostgresLog(database, context, { ttlMs: 30 * DAY, wakeups: { send() {} } });
});
beforeEach(() =>
  database.query({
    text: "TRUNCATE runtime.conversations, runtime.log_streams, runtime.log_entries CASCADE",
  }),
);
afterAll(async () => {
  await log.stop();
  await own[Symbol.asyncDispose]();
});

/** A janitor that works only when it is called. */
function janitorWith(options: Partial<JanitorOptions> = {}, on: Log = log) {
  return startJanitor(database, on, context, {
    retention: { ageMs: DAY, entries: 100, bytes: 1 << 20 },
    keepMs: 7 * DAY,
    everyMs: DAY / 4,
    metrics: conversationMetrics(context.telemetry.meter),
    active: () => false,
    ...options,
  });
}

/** A conversation with so many entries in its log, and one run. */
async function conversation(convId: string, entries = 10, status = "finished"): Promise<void> {
  await database.query({
    text: `WITH made AS (
        INSERT INTO runtime.conversations (conv_id, org_id, log_name, owner, run_id)
        VALUES ($1, 'acme', 'chat:' || $1, 'ada', $2) RETURNING conv_id
      )
      INSERT INTO runtime.conversation_runs (run_id, conv_id, org_id, subject, sender, status, message_id, ended_at)
      SELECT 'run-' || conv_id, conv_id, 'acme', 'ada', 'ada', $3, 'm', CASE WHEN $2::text IS NULL THEN now() END FROM made`,
    values: [convId, status === "running" ? `run-${convId}` : null, status],
  });
  await log.append(
    topicForConv(convId),
    Array.from({ length: entries }, (_, i) => `{"n":${i}}`),
  );
}

/** Makes conversations as if nothing had happened in them for so long. */
async function idleFor(ms: number, ...convIds: string[]): Promise<void> {
  const text = `UPDATE runtime.conversations SET updated_at = updated_at - $1 * interval '1 ms',
    trimmed_at = trimmed_at - $1 * interval '1 ms' WHERE conv_id = ANY ($2::text[])`;
  await database.query({ text, values: [ms, convIds] });
}

/** Dates the first so many entries of a log back. */
async function age(convId: string, entries: number, ms: number): Promise<void> {
  const text = `UPDATE runtime.log_entries e SET time = e.time - $3 FROM runtime.log_streams s
    WHERE s.stream = $1 AND e.log_id = s.log_id AND e.seq <= $2`;
  await database.query({ text, values: [topicForConv(convId), entries, ms] });
}

/** The messages of the conversation's run are stored up to a position of its log. */
async function storedUpTo(convId: string, seq: bigint): Promise<void> {
  await database.query({
    text: `INSERT INTO runtime.messages (org_id, conv_id, message_id, role, run_id, parts, status, log_epoch, log_seq, log_time)
      VALUES ('acme', $1, 'm', 'assistant', 'run-' || $1, '[]', 'streaming', 'e', $2, 0)`,
    values: [convId, seq],
  });
  await idleFor(DAY, convId);
}

const kept = async (convId: string) =>
  (await log.read(topicForConv(convId), { seq: 0n, time: 0 }, PLENTY))?.entries.length;
const names = async (table: "conversations" | "conversation_runs") =>
  (await database.query({ text: `SELECT conv_id FROM runtime.${table} ORDER BY conv_id` })).map(
    (row) => row.conv_id,
  );

test("cuts a log to its entries, bytes or age, whichever leaves less, and keeps its last entry", async () => {
  const janitor = janitorWith({ retention: { ageMs: DAY, entries: 8, bytes: 42 } });
  await conversation("entries", 10);
  await conversation("small", 3);
  await conversation("old", 5);
  await age("old", 3, 2 * DAY);
  await conversation("ancient", 5);
  await age("ancient", 5, 2 * DAY);
  expect(await janitor.pass()).toEqual({ visited: 4, trimmed: 4 + 3 + 4, deleted: 0, more: false });
  // Each entry has seven bytes.
  expect(await kept("entries")).toBe(6);
  expect([await kept("small"), await kept("old"), await kept("ancient")]).toEqual([3, 2, 1]);
  await janitor.stop();
});

test("visits changed conversations first, and others only when their entries may be too old", async () => {
  const janitor = janitorWith({ batch: 2 });
  for (const convId of ["a", "b", "c"]) await conversation(convId);
  expect(await janitor.pass()).toMatchObject({ visited: 2, more: true });
  expect(await janitor.pass()).toMatchObject({ visited: 1, more: false });
  expect(await janitor.pass()).toMatchObject({ visited: 0, more: false });

  await idleFor(DAY, "a", "b", "c");
  await database.query({ text: "UPDATE runtime.conversations SET updated_at = now() WHERE conv_id = 'c'" });
  for (const convId of ["a", "c"]) await age(convId, 10, 2 * DAY);
  await janitor.pass();
  expect(await kept("c")).toBe(1);
  expect(await janitor.pass()).toMatchObject({ visited: 1 });
  expect(await kept("a")).toBe(1);
  expect(await janitor.pass()).toMatchObject({ visited: 0 });
  await janitor.stop();
});

test("deletes a conversation without activity for the TTL, with its log and runs, and no other", async () => {
  const janitor = janitorWith();
  for (const convId of ["idle", "fresh", "waiting"]) await conversation(convId);
  await conversation("nothing-said", 0).catch(() => {});
  await idleFor(8 * DAY, "idle", "waiting");
  await database.query({ text: "UPDATE runtime.conversations SET queued = 1 WHERE conv_id = 'waiting'" });
  expect(await janitor.pass()).toMatchObject({ deleted: 1, more: false });
  expect(await names("conversations")).toEqual(["fresh", "nothing-said", "waiting"]);
  expect(await names("conversation_runs")).toEqual(["fresh", "nothing-said", "waiting"]);
  expect([await kept("idle"), await kept("fresh")]).toEqual([undefined, 10]);
  await janitor.stop();
});

test("keeps an idle conversation that a file was just uploaded to", async () => {
  for (const convId of ["new-file", "old-file"]) await conversation(convId);
  await database.query({
    text: `INSERT INTO runtime.files (org_id, file_id, conv_id, name, media_type, size, created_at) VALUES
      ('acme', 'f1', 'new-file', 'a', 'text/plain', 1, now() - interval '6 days'),
      ('acme', 'f2', 'old-file', 'a', 'text/plain', 1, now() - interval '8 days')`,
  });
  await idleFor(8 * DAY, "new-file", "old-file");
  const janitor = janitorWith();
  expect(await janitor.pass()).toMatchObject({ deleted: 1 });
  expect(await names("conversations")).toEqual(["new-file"]);
  await janitor.stop();
});

test("trims a conversation with a running run again and again, and never deletes it", async () => {
  const janitor = janitorWith({ everyMs: 0 });
  await conversation("busy", 150, "running");
  await idleFor(100 * DAY, "busy");
  // Its server has stored nothing yet: readers need all of the log.
  expect(await janitor.pass()).toMatchObject({ trimmed: 0, deleted: 0 });
  await storedUpTo("busy", 60n);
  expect(await janitor.pass()).toMatchObject({ trimmed: 50, deleted: 0 });
  await log.append(topicForConv("busy"), ["1", "2", "3"]);
  expect(await janitor.pass()).toMatchObject({ trimmed: 3, deleted: 0 });
  expect(await names("conversations")).toEqual(["busy"]);
  await janitor.stop();
});

test("deletes many idle conversations in bounded passes", async () => {
  const janitor = janitorWith({ batch: 3 });
  const all = Array.from({ length: 7 }, (_, i) => `c${i}`);
  for (const convId of all) await conversation(convId, 1);
  await idleFor(8 * DAY, ...all);
  const passes = [await janitor.pass(), await janitor.pass(), await janitor.pass()];
  expect(passes.map(({ deleted }) => deleted)).toEqual([3, 3, 1]);
  expect(passes.map(({ more }) => more)).toEqual([true, true, false]);
  expect(await names("conversations")).toEqual([]);
  expect(await database.query({ text: "SELECT 1 FROM runtime.log_streams" })).toEqual([]);
  await janitor.stop();
});

test("completes a removal of a lost server, and leaves a running one to its server", async () => {
  const janitor = janitorWith();
  await conversation("lost");
  await conversation("under-way");
  const text = "UPDATE runtime.conversations SET removed_at = now() - $2 * interval '1 s' WHERE conv_id = $1";
  await database.query({ text, values: ["lost", 120] });
  await database.query({ text, values: ["under-way", 1] });
  expect(await janitor.pass()).toMatchObject({ visited: 0, deleted: 1 });
  expect(await names("conversations")).toEqual(["under-way"]);
  expect([await kept("lost"), await kept("under-way")]).toEqual([undefined, 10]);
  await janitor.stop();
});

test("deletes runs that ended before the retained log, but never the last one", async () => {
  const janitor = janitorWith();
  await conversation("long");
  const text = `INSERT INTO runtime.conversation_runs (run_id, conv_id, org_id, subject, sender, status, message_id, ended_at)
    SELECT 'run-' || n, 'long', 'acme', 'ada', 'ada', 'finished', 'm', now() - n * interval '1 h' FROM generate_series(20, 30) n`;
  await database.query({ text });
  await database.query({
    text: "UPDATE runtime.conversation_runs SET ended_at = now() - interval '9 days' WHERE run_id = 'run-long'",
  });
  await janitor.pass();
  const left = await database.query({
    text: "SELECT run_id FROM runtime.conversation_runs ORDER BY ended_at DESC",
  });
  expect(left.map((row) => row.run_id)).toEqual(["run-20", "run-21", "run-22", "run-23", "run-long"]);
  await janitor.stop();
});

test("neither waits for nor deletes a conversation that is being changed", async () => {
  const janitor = janitorWith();
  await conversation("a");
  await conversation("b");
  await idleFor(8 * DAY, "a", "b");
  await database.interactive(async (tx) => {
    await tx.query({ text: "SELECT 1 FROM runtime.conversations WHERE conv_id = 'a' FOR UPDATE" });
    expect(await janitor.pass()).toMatchObject({ deleted: 1 });
    await tx.query({ text: "UPDATE runtime.conversations SET updated_at = now() WHERE conv_id = 'a'" });
  });
  expect(await janitor.pass()).toMatchObject({ deleted: 0 });
  expect(await names("conversations")).toEqual(["a"]);
  await janitor.stop();
});

test("a log that fails does not stop the cleaning of others, and is reported", async () => {
  const broken: Log = {
    ...log,
    trim: (stream, keep) =>
      stream === topicForConv("a") ? Promise.reject(new Error("no trim")) : log.trim(stream, keep),
    delete: (stream) =>
      stream === topicForConv("d") ? Promise.reject(new Error("no delete")) : log.delete(stream),
  };
  const janitor = janitorWith({}, broken);
  for (const convId of ["a", "b", "c", "d", "e", "f"]) await conversation(convId, 150);
  await idleFor(8 * DAY, "d", "e");
  await expect(janitor.pass()).rejects.toThrow("no trim");
  expect([await kept("a"), await kept("b"), await kept("f")]).toEqual([150, 100, 100]);
  // Nobody can use it, and the next server to look ends it.
  expect(await names("conversations")).toEqual(["a", "b", "c", "d", "f"]);
  await janitor.stop();

  await database.query({ text: "UPDATE runtime.conversations SET removed_at = removed_at - interval '1 h'" });
  const repaired = janitorWith();
  expect(await repaired.pass()).toMatchObject({ visited: 1, trimmed: 50, deleted: 1 });
  await repaired.stop();
});

test("works in the background when this server is active, and counts its work", async () => {
  await conversation("idle");
  await conversation("long", 150);
  await idleFor(8 * DAY, "idle");
  let active = false;
  let looked = 0;
  const janitor = janitorWith({
    everyMs: 10,
    active() {
      looked++;
      return active;
    },
  });
  await patiently(() => expect(looked).toBeGreaterThan(2));
  expect(await names("conversations")).toEqual(["idle", "long"]);
  active = true;
  await patiently(async () => expect(await names("conversations")).toEqual(["long"]));
  await janitor.stop();
  const scraped = await context.telemetry.scrape();
  expect(scraped).toMatch(/khala_conversation_trimmed_entries_total(\{[^}]*\})? [1-9]/);
  expect(scraped).toMatch(/khala_conversation_deletions_total\{[^}]*cause="age"[^}]*\} [1-9]/);
});

test("pauses in the background three times as long as each part took, and not when called", async () => {
  for (let i = 0; i < 10; i++) await conversation(`c${i}`, 150);
  const rests: number[] = [];
  let now = Date.now();
  // Each read of this clock takes ten milliseconds.
  const clock = {
    now: () => (now += 10),
    after(ms: number, fn: () => void) {
      const isRest = ms < DAY;
      if (isRest) rests.push(ms);
      const timer = isRest ? setImmediate(fn) : undefined;
      return () => clearImmediate(timer);
    },
  };
  const options = {
    retention: { ageMs: DAY, entries: 100, bytes: 1 << 20 },
    keepMs: 7 * DAY,
    everyMs: DAY,
    metrics: conversationMetrics(context.telemetry.meter),
  };
  const quick = startJanitor(database, log, { ...context, clock }, { ...options, active: () => false });
  expect(await quick.pass()).toMatchObject({ visited: 10, trimmed: 500 });
  await quick.stop();
  expect(rests).toEqual([]);
  for (let i = 0; i < 10; i++) await log.append(topicForConv(`c${i}`), ['{"n":1}']);
  await database.query({ text: "UPDATE runtime.conversations SET trimmed_at = NULL" });
  let trimmed = 0;
  const watched: Log = {
    ...log,
    trim(...args) {
      trimmed++;
      return log.trim(...args);
    },
  };
  const calm = startJanitor(database, watched, { ...context, clock }, { ...options, active: () => true });
  await patiently(() => expect(trimmed).toBe(10));
  await calm.stop();
  // Before the first part it has also queried the work to do.
  expect(rests).toEqual([60, 30]);
});
