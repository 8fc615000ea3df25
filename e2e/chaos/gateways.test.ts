import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Chaos } from "./support/chaos.ts";

// Processes start and stop here, on a machine that may have much else to do.
vi.setConfig({ testTimeout: 90_000 });

const RUNS = "runtime.run_summaries";
let store: TestDatabase;
let chaos: Chaos;

beforeEach(async () => {
  store = await testDatabase();
  chaos = new Chaos(store, 7);
});

afterEach(async () => {
  await chaos[Symbol.asyncDispose]();
  await store[Symbol.asyncDispose]();
});

/** The process that projects, as the database knows it. */
async function leaseHolder(): Promise<string | undefined> {
  const [row] = await store.database.query<{ holder: string }>({
    text: "SELECT holder FROM runtime.leases WHERE name = 'sync' AND expires_at > now()",
  });
  return row?.holder;
}

test("clients of a gateway killed during live delivery lose nothing", async () => {
  const [doomed] = await Promise.all([chaos.gateway(), chaos.gateway()]);
  await chaos.people();
  chaos.startWriters();
  await chaos.steps(200);
  chaos.withdraw(doomed);
  await doomed.end("SIGKILL");
  await chaos.steps(200);
  await chaos.gateway();
  await chaos.steps(200);
  await chaos.stopWriters();
  await chaos.agree();
});

test("clients of a gateway killed during a replay continue at another one, from their cursor", async () => {
  // A batch is one update, and all but the last rows come from the database: a replay takes its time.
  const doomed = await chaos.gateway({ KHALA_REPLAY_MAX_UPDATES: "1", KHALA_TAIL_BYTES: "0" });
  const writer = chaos.writer("acme", "ann", 600);
  // Not all at once: a request is given up after two seconds.
  for (let run = 0; run < 600; run += 50)
    await Promise.all(Array.from({ length: 50 }, (_, i) => writer.step(2, run + i)));
  let batches = 0;
  const killed = Promise.withResolvers<void>();
  const lagging = chaos.witness("acme", "ann", {
    topics: [RUNS],
    fromStart: true,
    onBatch() {
      if (++batches === 20) killed.resolve(doomed.end("SIGKILL"));
    },
  });
  const other = await chaos.gateway();
  chaos.withdraw(other);
  lagging.start();
  await killed.promise;
  await eventually("the connection is lost", () => lagging.closes.length > 0);
  const { cursor } = lagging.view(RUNS);
  expect(cursor!.watermark).toBeGreaterThanOrEqual(20n);
  expect(cursor!.watermark).toBeLessThan(600n);
  chaos.withdraw(doomed);
  chaos.gateways.push(other);
  await chaos.agree();
  expect(lagging.stales).toEqual([]);
});

test("a gateway suspended past its lease is replaced, and breaks and repeats nothing when it wakes", async () => {
  const sleeper = await chaos.gateway();
  const before = await eventually("the first gateway projects", leaseHolder);
  await chaos.gateway();
  await chaos.people();
  chaos.startWriters();
  await chaos.steps(100);
  chaos.withdraw(sleeper);
  sleeper.freeze();
  await eventually("another gateway projects", async () => {
    const holder = await leaseHolder();
    return holder !== undefined && holder !== before;
  });
  await chaos.steps(100);
  sleeper.thaw();
  chaos.gateways.push(sleeper);
  await chaos.steps(200);
  await chaos.stopWriters();
  await chaos.agree();
});
