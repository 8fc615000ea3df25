import { KhalaError } from "@khala/contracts";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { pino } from "pino";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isConnectionFailure, openDatabase } from "./database.ts";

let shared: TestDatabase;
beforeAll(async () => {
  shared = await testDatabase();
  await shared.database.query({ text: "CREATE TABLE notes (id bigint PRIMARY KEY, words text)" });
});
afterAll(() => shared[Symbol.asyncDispose]());

const ids = async () => {
  const rows = await shared.database.query<{ id: bigint }>({ text: "SELECT id FROM notes ORDER BY id" });
  return rows.map((row) => row.id);
};
const insert = (id: bigint) => ({
  name: "insert_note",
  text: "INSERT INTO notes (id) VALUES ($1)",
  values: [id],
});

/** A pool whose connection to the server can be cut. */
async function behindProxy(options: { answerTimeoutMs?: number; connectTimeoutMs?: number } = {}) {
  const { hostname, port } = new URL(shared.url);
  const proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  const database = openDatabase({
    url: proxy.through(shared.url),
    poolSize: 1,
    log: pino({ level: "silent" }),
    connectTimeoutMs: 30_000,
    ...options,
  });
  return {
    proxy,
    database,
    async [Symbol.asyncDispose]() {
      proxy.cut();
      await database.close();
      await proxy[Symbol.asyncDispose]();
    },
  };
}

const failure = (promise: Promise<unknown>) =>
  promise.then(
    () => expect.fail("it succeeded"),
    (error: unknown) => error,
  );

test("returns a 64-bit integer as a bigint", async () => {
  const [row] = await shared.database.query({
    text: "SELECT 9223372036854775807::int8 AS big, 7::int4 AS small",
  });
  expect(row).toEqual({ big: 9223372036854775807n, small: 7 });
});

test("returns the rows of every statement of a transaction, in order", async () => {
  const rows = await shared.database.transaction([
    insert(101n),
    { text: "SELECT count(*) AS n FROM notes WHERE id = 101" },
    { text: "SELECT $1::text AS word", values: ["last"] },
  ]);
  expect(rows).toEqual([[], [{ n: 1n }], [{ word: "last" }]]);
  expect(await ids()).toContain(101n);
});

test("rolls a transaction back at its first failure, and throws that one", async () => {
  const repeated = await failure(
    shared.database.transaction([insert(201n), insert(201n), insert(202n), { text: "SELECT 1/0" }]),
  );
  expect(repeated).toMatchObject({ code: "23505" });
  expect(await ids()).not.toContain(201n);
  expect(await ids()).not.toContain(202n);
});

test("reuses the connection of a failed transaction", async () => {
  await using single = await testDatabase({ poolSize: 1 });
  const look = () => single.database.query({ text: "SELECT pg_backend_pid() AS pid, now()::text AS began" });
  const [before] = await look();
  await failure(single.database.transaction([{ text: "SELECT 1/0" }]));
  const [after] = await look();
  const [later] = await look();
  expect(after?.pid).toBe(before?.pid);
  expect(later?.began).not.toBe(after?.began);
});

test("sends a transaction in one go, without waiting for answers in between", async () => {
  await using remote = await behindProxy();
  await remote.database.query({ text: "SELECT 1" });
  remote.proxy.pause("answers");
  const unanswered = remote.database.transaction([insert(301n), insert(302n)]);
  await expect.poll(ids, { timeout: 60_000 }).toEqual(expect.arrayContaining([301n, 302n]));
  remote.proxy.resume();
  expect(await unanswered).toEqual([[], []]);
});

test("transactions that query outside of themselves never wait for each other's connections", async () => {
  await using store = await testDatabase({ poolSize: 3 });
  const { database } = store;
  const nested = Array.from({ length: 12 }, (_, i) =>
    database.interactive(async (tx) => {
      await tx.query({ text: "SELECT 1" });
      const [row] = await database.query<{ n: number }>({ text: "SELECT $1::int AS n", values: [i] });
      return row!.n;
    }),
  );
  expect(await Promise.all(nested)).toEqual(nested.map((_, i) => i));
});

test("passes values of every type unchanged", async () => {
  const values = [
    Buffer.from([0, 1, 255, 0x5c]),
    ['plain, "quoted"', "back\\slash", "{brace}", "", null, "NULL", "ü\n"],
    [1n, -(2n ** 63n), null],
    [true, false],
    new Date(1_700_000_000_123),
    null,
    [Buffer.from([0, 0x22, 0x5c, 255]), null, Buffer.alloc(0)],
  ];
  const text = `SELECT $1::bytea AS bytes, $2::text[] AS words, $3::bigint[]::text[] AS numbers, $4::bool[] AS truths,
    $5::timestamptz AS time, $6::text AS nothing, $7::bytea[] AS many`;
  const [[row]] = (await shared.database.transaction([{ text, values }])) as [[Record<string, unknown>]];
  expect(Object.values(row)).toEqual([
    values[0],
    values[1],
    ["1", "-9223372036854775808", null],
    values[3],
    values[4],
    null,
    values[6],
  ]);
});

test("leaves no timer behind that would keep the process alive", async () => {
  const clocks = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  await shared.database.transaction([{ text: "SELECT 1" }]);
  const before = clocks();
  for (let i = 0; i < 10; i++) await shared.database.transaction([{ text: "SELECT 1" }]);
  await failure(shared.database.transaction([{ text: "SELECT 1/0" }]));
  expect(clocks()).toBeLessThanOrEqual(before);
});

test("commits an interactive transaction, and rolls it back when its function throws", async () => {
  const seen = await shared.database.interactive(async (tx) => {
    await tx.query(insert(401n));
    return tx.query<{ n: bigint }>({ text: "SELECT count(*) AS n FROM notes WHERE id = 401" });
  });
  expect(seen).toEqual([{ n: 1n }]);
  const changedItsMind = await failure(
    shared.database.interactive(async (tx) => {
      await tx.query(insert(402n));
      throw new Error("changed its mind");
    }),
  );
  expect(changedItsMind).toMatchObject({ message: "changed its mind" });
  expect(await ids()).not.toContain(402n);
});

const CALLS = {
  query: (database) => database.query({ text: "SELECT 1" }),
  transaction: (database) => database.transaction([{ text: "SELECT 1" }]),
  interactive: (database) => database.interactive((tx) => tx.query({ text: "SELECT 1" })),
} satisfies Record<string, (database: ReturnType<typeof openDatabase>) => Promise<unknown>>;

test.for(Object.entries(CALLS))(
  "%s: a connection that breaks is a retryable unavailable, and the next call works",
  async ([, call]) => {
    await using remote = await behindProxy();
    await call(remote.database);
    remote.proxy.pause("answers");
    const broken = failure(call(remote.database));
    remote.proxy.cut();
    remote.proxy.resume();
    const error = await broken;
    expect(error).toBeInstanceOf(KhalaError);
    expect(error).toMatchObject({ code: "unavailable", meaning: { retryable: true, status: 503 } });
    await call(remote.database);
  },
);

test.for(Object.entries(CALLS))(
  "%s: a server that refuses connections is a retryable unavailable",
  async ([, call]) => {
    await using remote = await behindProxy();
    remote.proxy.refuse();
    expect(await failure(call(remote.database))).toMatchObject({ code: "unavailable" });
    remote.proxy.resume();
    await call(remote.database);
  },
);

// At the same time: each waits for its whole timeout, which is long enough for a busy machine to answer the others.
test.concurrent.for([["query", CALLS.query] as const, ["transaction", CALLS.transaction] as const])(
  "%s: an answer that never comes is a retryable unavailable, and the next call works",
  async ([, call]) => {
    await using remote = await behindProxy({ answerTimeoutMs: 3_000 });
    await call(remote.database);
    remote.proxy.pause("answers");
    expect(await failure(call(remote.database))).toMatchObject({ code: "unavailable" });
    remote.proxy.resume();
    await call(remote.database);
  },
);

test("reports a server that accepts a connection and never answers as unavailable", async () => {
  await using remote = await behindProxy({ connectTimeoutMs: 500 });
  remote.proxy.pause();
  expect(await failure(remote.database.query({ text: "SELECT 1" }))).toMatchObject({ code: "unavailable" });
});

test("does not report an error in a statement as an outage", async () => {
  const error = await failure(shared.database.query({ text: "SELEC 1" }));
  expect(error).not.toBeInstanceOf(KhalaError);
  expect(error).toMatchObject({ code: "42601" });
});

test("prepares a statement again when its result type has changed", async () => {
  await using single = await testDatabase({ poolSize: 1 });
  const { database } = single;
  await database.query({ text: "CREATE TABLE shapes (id int)" });
  const shapes = { name: "shapes", text: "SELECT * FROM shapes" };
  const change = (n: number) => database.query({ text: `ALTER TABLE shapes ADD COLUMN c${n} int` });
  await database.query(shapes);
  await change(1);
  expect(await database.query(shapes)).toEqual([]);
  await change(2);
  expect(await database.transaction([shapes, shapes])).toEqual([[], []]);
  await change(3);
  // Within a transaction nothing can be repeated, but the next call works.
  expect(await failure(database.interactive((tx) => tx.query(shapes)))).toMatchObject({ code: "0A000" });
  expect(await database.query(shapes)).toEqual([]);
});

test("prepares a statement again when the server has forgotten it", async () => {
  await using single = await testDatabase({ poolSize: 1 });
  const one = { name: "one", text: "SELECT 1 AS n" };
  await single.database.query(one);
  await single.database.query({ text: "DEALLOCATE ALL" });
  expect(await single.database.query(one)).toEqual([{ n: 1 }]);
});

test("uses a name in and outside of interactive transactions, also after a failure", async () => {
  await using single = await testDatabase({ poolSize: 1 });
  const divide = (by: number) => ({ name: "divide", text: "SELECT 1 / $1::int AS n", values: [by] });
  await failure(single.database.query(divide(0)));
  expect(await single.database.interactive((tx) => tx.query(divide(1)))).toEqual([{ n: 1 }]);
  await failure(single.database.interactive((tx) => tx.query(divide(0))));
  expect(await single.database.query(divide(1))).toEqual([{ n: 1 }]);
  const other = { ...divide(1), text: "SELECT 2 / $1::int AS n" };
  expect(await single.database.interactive((tx) => tx.query(other))).toEqual([{ n: 2 }]);
});

test("fails only the caller of a value that cannot be encoded", async () => {
  await using single = await testDatabase({ poolSize: 1 });
  const { database } = single;
  const one = { text: "SELECT 1 AS n" };
  const bad = { text: "SELECT $1::text", values: [{ an: "object" }] };
  const [refused, next] = await Promise.allSettled([
    database.transaction([one, bad]),
    database.transaction([one]),
  ]);
  expect(refused).toMatchObject({ status: "rejected", reason: expect.any(TypeError) });
  expect(next).toMatchObject({ value: [[{ n: 1 }]] });
  expect(await failure(database.interactive((tx) => tx.query(bad)))).toBeInstanceOf(TypeError);
  expect(await database.query(one)).toEqual([{ n: 1 }]);
});

test("reports a host name that cannot be resolved, and a refused login, as unavailable", async () => {
  const other = (change: (url: URL) => void) => {
    const url = new URL(shared.url);
    change(url);
    const database = openDatabase({ url: url.href, poolSize: 1, log: pino({ level: "silent" }) });
    return failure(database.query({ text: "SELECT 1" })).finally(() => database.close());
  };
  const unresolved = await other((url) => {
    url.hostname = "database.invalid";
  });
  const refused = await other((url) => {
    url.username = "nobody_of_this_name";
  });
  for (const error of [unresolved, refused]) expect(error).toMatchObject({ code: "unavailable" });
});

test("reports a connection of its own that never answers as unavailable", async () => {
  await using remote = await behindProxy({ connectTimeoutMs: 500 });
  remote.proxy.pause();
  expect(await failure(remote.database.connect())).toMatchObject({ code: "unavailable" });
});

test("drops a connection to a read-only server, such as a standby, and reports it as unavailable", async () => {
  await using single = await testDatabase({ poolSize: 1 });
  const { database } = single;
  const admin = (sql: string) => shared.database.query({ text: sql });
  const name = new URL(single.url).pathname.slice(1);
  const write = { text: "CREATE TABLE notes ()" };
  await admin(`ALTER DATABASE "${name}" SET default_transaction_read_only = on`);
  const closed = { code: "unavailable", message: expect.stringContaining("accepts no writes") };
  expect(await failure(database.interactive((tx) => tx.query(write)))).toMatchObject(closed);
  expect(await failure(database.transaction([write]))).toMatchObject(closed);
  expect(await failure(database.interactive((tx) => tx.query(write)))).toMatchObject({ code: "unavailable" });
  await admin(`ALTER DATABASE "${name}" RESET default_transaction_read_only`);
  // A session that was made before would still be read-only.
  await database.interactive((tx) => tx.query(write));
});

test.for([
  "EAI_AGAIN",
  "ERR_STREAM_DESTROYED",
  "28000",
  "28P01",
  "57P01",
  "25006",
  "3D000",
  "ECONNRESET",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "ERR_TLS_CERT_ALTNAME_INVALID",
])("%s is a lost connection", (code) => {
  expect(isConnectionFailure(Object.assign(new Error("?"), { code }))).toBe(true);
});

test.for(["ERR_INVALID_ARG_TYPE", "57014", "40P01", "23505", "22P02"])(
  "%s is not a lost connection",
  (code) => {
    expect(isConnectionFailure(Object.assign(new Error("?"), { code }))).toBe(false);
  },
);

test("says which resource a database has run out of", async () => {
  const run = (code: string) =>
    failure(
      shared.database.query({ text: `DO $$ BEGIN RAISE SQLSTATE '${code}' USING MESSAGE = 'full'; END $$` }),
    );
  expect(await run("53100")).toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("no disk space left"),
  });
  expect(await run("53300")).toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("no connection left"),
  });
});

test("reports a statement that took too long as unavailable", async () => {
  const slow = [{ text: "SET LOCAL statement_timeout = 1" }, { text: "SELECT pg_sleep(60)" }];
  expect(await failure(shared.database.transaction(slow))).toMatchObject({ code: "unavailable" });
});
