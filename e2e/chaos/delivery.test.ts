import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { runSummaries } from "../../packages/server/src/index.ts";
import { trimTopic } from "../../packages/server/src/sync/rebuild/retention.ts";
import { Chaos } from "./support/chaos.ts";

// Processes start and stop here, on a machine that may have much else to do.
vi.setConfig({ testTimeout: 90_000 });

const RUNS = runSummaries.topic;
let store: TestDatabase;
let chaos: Chaos;

beforeEach(async () => {
  store = await testDatabase();
  chaos = new Chaos(store, 11);
});

afterEach(async () => {
  await chaos[Symbol.asyncDispose]();
  await store[Symbol.asyncDispose]();
});

/** Cuts connections of gateways, as a network or an administrator does; how many there were. */
async function cutConnections(which: "listening" | "all"): Promise<number> {
  const rows = await store.database.query({
    text: `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'khala'
        AND ($1 OR query LIKE 'LISTEN%')`,
    values: [which === "all"],
  });
  return rows.length;
}

/** Removes what is in the journal now, as retention does with what is old. */
async function purge(): Promise<void> {
  while ((await trimTopic(store.database, runSummaries, 0)) > 0);
}

test("lost wakeups, dead LISTEN connections and cut queries delay updates and lose none", async () => {
  await Promise.all([chaos.gateway(), chaos.gateway({ KHALA_WAKEUPS: "off" })]);
  await chaos.people();
  chaos.startWriters();
  for (let round = 0; round < 5; round++) {
    await chaos.steps(60);
    await eventually("a LISTEN connection is cut", async () => (await cutConnections("listening")) > 0);
    await chaos.steps(60);
    expect(await cutConnections("all")).toBeGreaterThan(0);
  }
  await chaos.stopWriters();
  await chaos.agree();
});

test("a client that does not read is closed with a retryable code, uses bounded memory, and resumes", async () => {
  const bufferBytes = 65_536;
  const batchBytes = 200_000;
  const gateway = await chaos.gateway({
    KHALA_SOCKET_BUFFER_BYTES: String(bufferBytes),
    KHALA_SLOW_CONSUMER_MS: "2000",
    KHALA_REPLAY_MAX_BATCH_BYTES: String(batchBytes),
  });
  const quick = chaos.witness("acme", "ann", { topics: [RUNS] }).start();
  const slow = chaos.witness("acme", "eve", { topics: [RUNS] }).start();
  const writer = chaos.writer("acme", "ann");
  await chaos.agree();
  slow.pause();
  // What lies in the kernel's buffers counts as sent: it takes some megabytes until a socket is full.
  await eventually("the slow client is dropped", async () => {
    await writer.grow(20);
    expect(await metric(gateway.url, "khala_gateway_waiting_bytes")).toBeLessThan(
      bufferBytes + 2 * batchBytes,
    );
    return (await metric(gateway.url, "khala_sync_pushes_dropped_total")) > 0;
  });
  slow.resume();
  await eventually("the slow client is told", () => slow.closes.length > 0);
  await chaos.agree();
  expect(slow.errors).toEqual(["slow_consumer"]);
  expect(slow.closes).toEqual([1013]);
  expect(slow.stales).toEqual([]);
  expect(quick.closes).toEqual([]);
});

test("every client gets a burst of 10,000 updates in order", async () => {
  await Promise.all([chaos.gateway(), chaos.gateway()]);
  await chaos.people();
  await Promise.all(
    chaos.writers.flatMap((writer) => Array.from({ length: 5 }, (_, run) => writer.step(500, run))),
  );
  await chaos.agree();
});

test("a purge gives lagging readers stale_cursor, and listing makes them complete", async () => {
  // A batch is one update, read from the database: a replay takes its time.
  const [slow] = await Promise.all([
    chaos.gateway({ KHALA_REPLAY_MAX_UPDATES: "1", KHALA_TAIL_BYTES: "0" }),
    chaos.gateway(),
  ]);
  await chaos.people();
  const away = chaos.witness("acme", "ann", { topics: [RUNS] }).start();
  const [writer] = chaos.writers;
  await writer!.step(5);
  await chaos.agree();
  await away.stop();
  const cursor = away.view(RUNS).cursor!;
  await Promise.all(Array.from({ length: 5 }, (_, run) => writer!.step(200, run)));
  await chaos.agree();

  const purged = Promise.withResolvers<void>();
  let batches = 0;
  const replaying = chaos.witness("acme", "bob", {
    topics: [RUNS],
    urls: () => [slow.url],
    fromStart: true,
    onBatch() {
      if (++batches === 3) purged.resolve(purge());
    },
  });
  replaying.start();
  await purged.promise;
  away.start();
  await chaos.agree();
  expect(away.stales).toMatchObject([{ topic: RUNS, sent: { ...cursor } }]);
  expect(away.stales[0]!.floor.watermark).toBeGreaterThan(cursor.watermark);
  expect(replaying.stales).toMatchObject([
    { topic: RUNS, floor: { ...away.stales[0]!.floor, epoch: expect.any(String) } },
  ]);
  // Who had everything is not disturbed.
  for (const witness of chaos.witnesses.slice(0, 4)) expect(witness.stales).toEqual([]);
});

test("a gateway suspended through writes and their purge sends its clients stale_cursor", async () => {
  const projecting = await chaos.gateway();
  const sleeper = await chaos.gateway();
  const sleeping = chaos.witness("acme", "ann", { urls: () => [sleeper.url] }).start();
  const writer = chaos.writer("acme", "bob", 1);
  await writer.step(1);
  await chaos.agree();
  chaos.withdraw(sleeper);
  sleeping.pause();
  sleeper.freeze();
  await writer.step(2);
  await eventually("the steps are projected", async () => (await stepsOf("run:acme.bob.r0")) === 3);
  await purge();
  sleeper.thaw();
  sleeping.resume();
  await eventually("the client is told", () => sleeping.stales.length > 0);
  expect(sleeping.stales.map(({ topic }) => topic)).toEqual([RUNS]);
  await chaos.agree();
  expect(projecting.running && sleeper.running).toBe(true);
});

async function stepsOf(docKey: string): Promise<number | undefined> {
  const [row] = await store.database.query<{ steps: number }>({
    text: `SELECT (convert_from(payload, 'UTF8')::json ->> 'steps')::int AS steps
      FROM runtime.sync_run_summaries WHERE doc_key = $1`,
    values: [docKey],
  });
  return row?.steps;
}

/** A metric of a gateway, all its series together. */
async function metric(url: string, name: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`, { signal: AbortSignal.timeout(30_000) })).text();
  const series = text
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
  return series.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}
