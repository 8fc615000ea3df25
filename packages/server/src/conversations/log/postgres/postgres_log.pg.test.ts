import { logSuite } from "@khala/test-support/conformance/log/log";
import { seeded, testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Database, openDatabase } from "../../../database/database.ts";
import { openWakeups } from "../../../database/wakeups.ts";
import { systemClock } from "../../../kit/clock.ts";
import type { Context } from "../../../kit/context.ts";
import { type Appended, type Entry, type Log, StreamGone } from "../log.ts";
import { openPostgresLog, type PostgresLog } from "./postgres_log.ts";
import { sweepLog } from "./sweep.ts";

const TTL = 3_600_000;
const START = { seq: 0n, time: 0 };
const PLENTY = { entries: 10_000, bytes: 64 << 20 };

async function expire(database: Database, stream: string): Promise<void> {
  const text = "UPDATE runtime.log_streams SET expires_at = now(), sweep_at = now() WHERE stream = $1";
  await database.query({ text, values: [stream] });
}

/** A server's log with its wakeups, as khala.ts joins them. */
function server(database: Database, context: Context, clock = context.clock) {
  const wakeups = openWakeups(database, context, { enabled: true });
  const log: PostgresLog = openPostgresLog(database, { ...context, clock }, { ttlMs: TTL, wakeups });
  const listening = Promise.withResolvers<void>();
  wakeups.on("log:", (stream) => log.onWakeup(stream));
  wakeups.onListening(listening.resolve);
  wakeups.start();
  return {
    log,
    listening: listening.promise,
    async [Symbol.asyncDispose]() {
      await log.stop();
      await wakeups.stop();
    },
  };
}

logSuite("Postgres", async () => {
  const parts = new AsyncDisposableStack();
  const { database } = parts.use(await testDatabase({ poolSize: 8 }));
  let clockIs: number | undefined;
  const now = () => clockIs ?? systemClock.now();
  const context = await testContext();
  const open = async () => {
    const each = parts.use(server(database, context, { ...systemClock, now }));
    await each.listening;
    return each.log;
  };
  return {
    log: await open(),
    another: open,
    expire: (stream) => expire(database, stream),
    setClock: (ms) => {
      clockIs = ms;
    },
    async bookmarkOf(stream) {
      const text = "SELECT ui FROM runtime.log_streams WHERE stream = $1";
      const [row] = await database.query<{ ui: bigint | null }>({ text, values: [stream] });
      return row?.ui ?? undefined;
    },
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
});

let shared: TestDatabase;
let context: Context;
beforeAll(async () => {
  shared = await testDatabase();
  context = await testContext();
});
afterAll(() => shared[Symbol.asyncDispose]());

const deaf = { send() {} };

/** A database that counts its round trips. */
function counted(database: Database) {
  const counts = { queries: 0 };
  const counting: Database = {
    ...database,
    query(statement) {
      counts.queries++;
      return database.query(statement);
    },
  };
  return { counts, database: counting };
}

async function textsOf(log: Log, stream: string): Promise<string[]> {
  const page = await log.read(stream, START, PLENTY);
  return page?.entries.map((entry) => entry.data) ?? [];
}

test("appends to 200 streams at once share a few transactions", async () => {
  const { counts, database } = counted(shared.database);
  const log = openPostgresLog(database, context, { ttlMs: TTL, wakeups: deaf });
  const streams = Array.from({ length: 200 }, (_, i) => `chat:many-${i}`);
  const bounds = await Promise.all(streams.map((stream) => log.append(stream, ["x", stream])));
  expect(counts.queries).toBeLessThan(10);
  expect(bounds.every(({ head }) => head.seq === 2n)).toBe(true);
  expect(new Set(bounds.map(({ epoch }) => epoch)).size).toBe(200);
  expect(await textsOf(log, streams[77]!)).toEqual(["x", "chat:many-77"]);
});

test("finds an append whose wakeup was lost by polling the heads", async () => {
  const writer = openPostgresLog(shared.database, context, { ttlMs: TTL, wakeups: deaf });
  const reader = openPostgresLog(shared.database, context, { ttlMs: TTL, wakeups: deaf });
  const told: string[] = [];
  await reader.watch("chat:lost", {
    appended: () => told.push("appended"),
    missed: () => told.push("missed"),
  });
  await writer.append("chat:lost", ["unheard"]);
  expect(told).toEqual([]);
  const [bounds] = await reader.bounds(["chat:lost"]);
  expect(bounds?.head.seq).toBe(1n);
  reader.recheck();
  expect(told).toEqual(["missed"]);
  expect(await textsOf(reader, "chat:lost")).toEqual(["unheard"]);
});

test("reads what another server wrote to 300 streams in a few statements", async () => {
  const { counts, database } = counted(shared.database);
  const writer = openPostgresLog(shared.database, context, { ttlMs: TTL, wakeups: deaf });
  const reader = openPostgresLog(database, context, { ttlMs: TTL, wakeups: deaf });
  const streams = Array.from({ length: 300 }, (_, i) => `chat:hinted-${i}`);
  const heard = new Map<string, string[]>();
  const missed: string[] = [];
  for (const stream of streams) {
    const texts: string[] = [];
    heard.set(stream, texts);
    await reader.watch(stream, {
      appended: ({ entries }) => texts.push(...entries.map(({ data }) => data)),
      missed: () => missed.push(stream),
      position: () => ({ seq: BigInt(texts.length), time: 0 }),
    });
  }
  // More than one read brings for a stream.
  const words = (stream: string) => Array.from({ length: 250 }, (_, i) => `${stream} ${i}`);
  await Promise.all(streams.map((stream) => writer.append(stream, words(stream).slice(0, 2))));
  await writer.append(streams[7]!, words(streams[7]!).slice(2));
  for (const stream of streams) reader.onWakeup(stream);
  await until("everything", () => heard.get(streams[7]!)!.length === 250);
  expect(streams.map((stream) => heard.get(stream)!.length)).toEqual(
    streams.map((_, i) => (i === 7 ? 250 : 2)),
  );
  expect(heard.get(streams[7]!)).toEqual(words(streams[7]!));
  expect(counts.queries).toBeLessThanOrEqual(3);
  expect(missed).toEqual([]);
  await writer.delete(streams[3]!);
  reader.onWakeup(streams[3]!);
  await until("the deleted one", () => missed.includes(streams[3]!));
});

test("notifies a watcher of one server's appends completely and in order", async () => {
  const log = openPostgresLog(shared.database, context, { ttlMs: TTL, wakeups: deaf });
  const told: Appended[] = [];
  await log.watch("chat:order", {
    appended: (appended) => told.push(appended),
    missed: () => expect.fail("missed"),
  });
  const words = Array.from({ length: 100 }, (_, i) => String(i));
  await Promise.all(words.map((word) => log.append("chat:order", [word])));
  const entries: Entry[] = told.flatMap((appended) => appended.entries);
  expect(entries).toEqual((await log.read("chat:order", START, PLENTY))!.entries);
  expect(entries.map((entry) => entry.data)).toEqual(words);
});

test("a failed transaction fails its writers, and the next append continues without a gap", async () => {
  const log = openPostgresLog(shared.database, context, { ttlMs: TTL, wakeups: deaf });
  await log.append("chat:fails", ["1"]);
  await shared.database.query({
    text: `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN IF NEW.data = 'bad' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$`,
  });
  await shared.database.query({
    text: "CREATE TRIGGER refuse BEFORE INSERT ON runtime.log_entries FOR EACH ROW EXECUTE FUNCTION refuse()",
  });
  const outcomes = await Promise.allSettled([
    log.append("chat:fails", ["half", "bad"]),
    log.append("chat:beside", ["fine"]),
    log.append("chat:never", ["bad"]),
  ]);
  expect(outcomes.map((each) => each.status)).toEqual(["rejected", "fulfilled", "rejected"]);
  expect((await log.append("chat:fails", ["2"])).head.seq).toBe(2n);
  expect(await textsOf(log, "chat:fails")).toEqual(["1", "2"]);
  expect(await textsOf(log, "chat:beside")).toEqual(["fine"]);
  expect(await log.bounds(["chat:never"])).toEqual([undefined]);
});

test("a commit whose answer was lost fails its writer, and makes watchers read", async () => {
  const { hostname, port } = new URL(shared.url);
  await using proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  const database = openDatabase({
    url: proxy.through(shared.url),
    poolSize: 2,
    connectTimeoutMs: 60_000,
    log: context.log,
  });
  await using _closed = { [Symbol.asyncDispose]: () => database.close() };
  const woken: string[] = [];
  const log = openPostgresLog(database, context, {
    ttlMs: TTL,
    wakeups: { send: (name) => woken.push(name) },
  });
  await log.append("chat:cut", ["1"]);
  let missed = 0;
  await log.watch("chat:cut", {
    appended: () => expect.fail("appended of the unknown"),
    missed: () => missed++,
  });
  proxy.pause("answers");
  const failed = log.append("chat:cut", ["2"]).catch((error) => error);
  const direct = openPostgresLog(shared.database, context, { ttlMs: TTL, wakeups: deaf });
  await expect.poll(() => textsOf(direct, "chat:cut"), { timeout: 60_000 }).toEqual(["1", "2"]);
  proxy.cut();
  expect(await failed).toMatchObject({ code: "unavailable" });
  expect(missed).toBe(1);
  expect(woken).toEqual(["log:chat:cut", "log:chat:cut"]);
});

test("servers that append, mark, trim, open and delete the same streams at once never fail each other", async () => {
  await using own = await testDatabase({ poolSize: 8 });
  const { database } = own;
  const logs = [1, 2, 3].map(() => openPostgresLog(database, context, { ttlMs: TTL, wakeups: deaf }));
  const streams = Array.from({ length: 6 }, (_, i) => `chat:busy-${i}`);
  const random = seeded(7);
  const pick = <T>(list: readonly T[]) => list[Math.floor(random() * list.length)]!;
  const ways: ((log: Log, stream: string) => Promise<unknown>)[] = [
    ...Array(6).fill((log: Log, stream: string) => log.append(stream, ["a", "b", "c"])),
    (log, stream) => log.bookmark(stream, { seq: BigInt(Math.floor(random() * 50)), time: 0 }),
    (log, stream) => log.trim(stream, { entries: 5 }),
    (log, stream) => log.open(stream),
    (log, stream) => log.delete(stream),
    (_, stream) => expire(database, stream),
    () => sweepLog(database, 3),
  ];
  for (let round = 0; round < 20; round++) {
    await Promise.all(Array.from({ length: 60 }, () => pick(ways)(pick(logs), pick(streams))));
    for (const stream of streams) {
      const page = await logs[0]!.read(stream, START, PLENTY);
      const kept = page ? Number(page.head.seq - page.floor) : 0;
      expect(page?.entries.map((entry) => entry.seq) ?? []).toEqual(
        Array.from({ length: kept }, (_, i) => page!.floor + BigInt(i + 1)),
      );
    }
  }
  while ((await sweepLog(database, 1_000)).more);
  const [strays] = await database.query({
    text: `SELECT count(*) AS n FROM runtime.log_entries e
      WHERE NOT EXISTS (SELECT FROM runtime.log_streams s WHERE s.log_id = e.log_id)`,
  });
  expect(strays).toEqual({ n: 0n });
});

test("a sweep removes expired streams and the remains of deleted ones, and no live ones", async () => {
  await using own = await testDatabase();
  const { database } = own;
  const log = openPostgresLog(database, context, { ttlMs: TTL, wakeups: deaf });
  const lines = Array.from({ length: 30 }, (_, i) => String(i));
  for (const name of ["old", "reborn", "live"]) await log.append(`chat:${name}`, lines);
  const { epoch } = (await log.bounds(["chat:old"]))[0]!;
  await expire(database, "chat:old");
  await expire(database, "chat:reborn");
  await log.append("chat:reborn", ["again"]);

  const sums = { streams: 0, entries: 0 };
  for (let more = true; more; ) {
    const swept = await sweepLog(database, 7);
    expect(swept.entries).toBeLessThanOrEqual(7);
    sums.streams += swept.streams;
    sums.entries += swept.entries;
    more = swept.more;
  }
  expect(sums).toEqual({ streams: 1, entries: 60 });
  expect(await textsOf(log, "chat:live")).toEqual(lines);
  expect(await textsOf(log, "chat:reborn")).toEqual(["again"]);
  await expect(log.append("chat:old", ["x"], { epoch })).rejects.toThrow(StreamGone);
});

test("deleting a long stream leaves no entry behind", async () => {
  await using own = await testDatabase();
  const log = openPostgresLog(own.database, context, { ttlMs: TTL, wakeups: deaf });
  await log.append(
    "chat:long",
    Array.from({ length: 2_500 }, (_, i) => String(i)),
  );
  await log.delete("chat:long");
  const [left] = await own.database.query({
    text: "SELECT (SELECT count(*) FROM runtime.log_entries) + (SELECT count(*) FROM runtime.log_leftovers) AS n",
  });
  expect(left).toEqual({ n: 0n });
});
