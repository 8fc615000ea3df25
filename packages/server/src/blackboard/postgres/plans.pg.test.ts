import {
  Heard,
  makeTestArtifact,
  makeTestTask,
  numbered,
  routeByTags,
} from "@khala/test-support/conformance/board/support";
import { dead, done, retry, Worker } from "@khala/test-support/conformance/board/worker";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { readsOf, recording, withoutStatistics } from "@khala/test-support/postgres/plans";
import { PostgresServer } from "@khala/test-support/postgres/server";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { pino } from "pino";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Database, openDatabase } from "../../database/database.ts";
import { migrate } from "../../database/migrate.ts";
import type { BoardAgent } from "../board_options.ts";
import { openPostgresBoard, type PostgresBoard } from "./open_board.ts";

const quiet = pino({ level: "silent" });
let shared: TestDatabase;
beforeAll(async () => {
  shared = await testDatabase();
});
afterAll(() => shared[Symbol.asyncDispose]());

const AGENTS: readonly BoardAgent[] = ["a", "b", "slow"].map((agent) => ({
  agent,
  order: "key",
  strict: false,
}));

/** For counts that are not to depend on how long it takes. */
const PATIENT = { leaseMs: 60_000, pollMs: 10_000 };

async function opened(database: Database, agents = AGENTS, waits = { leaseMs: 8_000, pollMs: 100 }) {
  const heard = new Heard();
  const board: PostgresBoard = await openPostgresBoard(database, await testContext(), {
    agents,
    route: routeByTags,
    observer: heard,
    wakeups: { send() {} },
    ...waits,
    stopMs: 1_000,
  });
  return { board, heard };
}

/** Rows that were read of the board's tables: without an index, and through one. */
async function rowsRead(
  database: Database,
  tables = "board\\_%",
): Promise<{ scanned: bigint; looked: bigint }> {
  await database.query({ text: "SELECT pg_stat_force_next_flush()" });
  const [row] = await database.query<{ scanned: bigint; looked: bigint }>({
    text: `SELECT sum(t.seq_tup_read)::bigint AS scanned, sum(i.read)::bigint AS looked FROM pg_stat_user_tables t
      LEFT JOIN LATERAL (
        SELECT sum(i.idx_tup_read) AS read FROM pg_stat_user_indexes i WHERE i.relid = t.relid
      ) i ON true WHERE t.relname LIKE $1`,
    values: [tables],
  });
  return row!;
}

test("every statement finds its rows by an index, without statistics", async () => {
  const { database, statements } = recording(shared.database);
  const { board, heard } = await opened(database);
  await withoutStatistics(shared.database);
  const letters = numbered(["a", "b"], "k", 20).map((artifact) => ({ ...artifact, correlation_id: "c" }));
  await board.publish(letters);
  await board.publish(letters);
  await board.enqueue([makeTestTask("a", makeTestArtifact({ correlation_id: "c" }))]);
  const a = new Worker("a", (task) => (task.attempt === 1 ? retry(1) : done(makeTestArtifact())));
  const b = new Worker("b", async () => dead());
  for (const worker of [a, b]) board.consume(worker);
  await until("all are settled", () => heard.settlements.length === 62, { deadlineMs: 60_000 });
  const slow = new Worker(
    "slow",
    (_task, run) =>
      new Promise((resolve) => {
        run.signal.addEventListener("abort", () => resolve(done()));
      }),
  );
  board.consume(slow);
  await board.publish([makeTestArtifact({ to: "slow" })]);
  await until("a lease was renewed", () => statements.has("board_renew"));
  await board.get(letters[0]!.org_id, letters[0]!.id);
  await board.recent({ org: "acme", type: "Draft", limit: 5 });
  await board.recent({ org: "acme", correlationId: "c", limit: 5 });
  await board.lag();
  await board.correlations([{ org: "acme", name: "c" }]);
  const { deadLetters } = await board.deadLetters("b", { orgs: ["acme"], limit: 5 });
  await board.deadLetters("b", { orgs: ["acme"], limit: 5, correlationId: "c" });
  await board.deadLettersById("b", ["acme"], [deadLetters[0]!.id]);
  const own = ["board_claim", "board_claimable", "board_known", "board_newest", "board_recent"];
  expect([...statements.keys()]).toEqual(expect.arrayContaining([...own, "board_put", "board_settle"]));
  for (const [name, statement] of statements) {
    if (/^board_purge_[a-z]+$/.test(name)) continue;
    for (const read of await readsOf(shared.database, statement)) {
      expect.soft(/: \(/.test(read), `${name} reads ${read}`).toBe(true);
    }
  }
  await board.stop();
});

test.each(["without statistics", "with statistics"])(
  "a waiting task of a key costs the same with one or thousands of them, %s",
  async (how) => {
    // A server of its own: what is dead stays in the way while anybody on a server has an older transaction open.
    await using server = await PostgresServer.start();
    // One connection: the statistics of its reads are complete when it reports them.
    const database = openDatabase({ url: server.url, poolSize: 1, connectTimeoutMs: 60_000, log: quiet });
    await migrate(database, quiet);
    const { board, heard } = await opened(database, AGENTS, PATIENT);
    await withoutStatistics(database);
    const count = 1_000;
    for (let i = 0; i < count; i += 500) await board.publish(numbered("a", "hot", 500));
    if (how === "with statistics") await database.query({ text: "ANALYZE" });
    const before = await rowsRead(database);
    const worker = new Worker("a");
    const service = board.consume(worker);
    await until("all are settled", () => heard.settledBy("a").length === count, { deadlineMs: 60_000 });
    await service.stop();
    const after = await rowsRead(database);
    expect(worker.overlaps).toEqual([]);
    expect(after.scanned - before.scanned).toBe(0n);
    // About 6; a scan of those behind, or of those that were done before, would be 500.
    expect(Number(after.looked - before.looked) / count).toBeLessThan(50);
    await board.stop();
    await database.close();
  },
  90_000,
);
