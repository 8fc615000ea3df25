import { Heard, routeByTags } from "@khala/testing/conformance/board/support";
import { testContext } from "@khala/testing/kit/context";
import { ManualClock } from "@khala/testing/kit/manual_clock";
import { buffersOf, recording } from "@khala/testing/postgres/plans";
import { type TestDatabase, testDatabase } from "@khala/testing/postgres/test_database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { waitingCounts } from "../observe/correlation_state.ts";
import { openPostgresBoard } from "./open_board.ts";

const OPEN = 200_000;
const LIMIT = 2_000;
/** The id of the artifact, and of its task, with a number. */
const ID = "('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid";
const CORRELATION = `CASE WHEN i <= 20000 THEN 'big' ELSE 'c' || i / 10 END`;

/** 200,000 open tasks: half of them may run, the others stand behind a hundred keys. One in ten belongs to one correlation. */
const FILL: readonly [rows: number, insert: string][] = [
  [
    OPEN,
    `INSERT INTO runtime.board_artifacts (id, version, seq, org_id, type, correlation_id, routes, body)
  SELECT ${ID}, 1, i, 'acme', 'Draft', ${CORRELATION}, '{free}', repeat('x', 200)`,
  ],
  [
    OPEN,
    `INSERT INTO runtime.board_queue (seq, agent, lane, head, due_at, claimed_by, held_until, task_id, artifact_id,
    artifact_version, key, correlation_id, created_at)
  SELECT i, CASE WHEN i <= ${OPEN / 2} THEN 'free' ELSE 'keyed' END, CASE WHEN i > ${OPEN / 2} THEN 'l' || i % 100 END,
    i <= ${OPEN / 2} + 100, now() + (i - ${OPEN}) * interval '1 ms', CASE WHEN i <= 7 THEN 'another' END,
    CASE WHEN i <= 7 THEN now() + interval '1 hour' END, ${ID}, ${ID}, 1, 'k' || i, ${CORRELATION}, 0`,
  ],
  [
    50_000,
    `INSERT INTO runtime.board_dead_letters (agent, id, task_id, correlation_id, replay_id, body)
  SELECT 'free', ${ID}, ${ID}, 'c' || i / 10, CASE WHEN i > 5 THEN 'r' END, repeat('y', 500)`,
  ],
  [
    50_000,
    `INSERT INTO runtime.board_arrivals (agent, org_id, key, members, ids, versions, sizes, arrived_at)
  SELECT 'batched', 'acme', 'k', 1, ARRAY[${ID}], '{1}', '{9}', 0`,
  ],
  [50_000, `INSERT INTO runtime.board_unrouted (seq, id, version) SELECT i, ${ID}, 1`],
];
/** In steps that a statement has time for, however busy the machine is. */
const STEP = 25_000;

let shared: TestDatabase;
beforeAll(async () => {
  shared = await testDatabase();
  for (const [rows, insert] of FILL)
    for (let from = 1; from <= rows; from += STEP)
      await shared.database.query({ text: `${insert} FROM generate_series(${from}, ${from + STEP - 1}) i` });
});
afterAll(() => shared[Symbol.asyncDispose]());

async function opened(countUpTo?: number) {
  const clock = new ManualClock();
  const { database, statements } = recording(shared.database);
  const board = await openPostgresBoard(database, await testContext({ clock }), {
    agents: ["free", "keyed", "batched"].map((agent) => ({ agent, order: "key", strict: false })),
    route: routeByTags,
    routes: false,
    observer: new Heard(),
    wakeups: { send() {} },
    ...(countUpTo !== undefined && { countUpTo }),
  });
  /** Pages that the last statement of this name reads, if it is run again. */
  const pages = (name: string) => buffersOf(shared.database, statements.get(name)!);
  return { clock, board, pages, statements, database, [Symbol.asyncDispose]: () => board.stop() };
}

/** Before there are statistics, and with them. */
describe.each(["without", "with"])("200,000 open tasks, %s statistics", (how) => {
  beforeAll(async () => {
    if (how === "without") return;
    for (const table of ["artifacts", "queue", "dead_letters", "arrivals", "unrouted"])
      await shared.database.query({ text: `VACUUM ANALYZE runtime.board_${table}` });
  });

  test("counts and lag read no more than they count", async () => {
    await using few = await opened(LIMIT);
    const counts = new Map((await few.board.counts()).map((each) => [each.agent, each]));
    expect(counts.get("free")).toMatchObject({ running: 7, dead: 5 });
    expect(counts.get("free")!.waiting).toBeGreaterThanOrEqual(LIMIT - 7);
    expect(counts.get("keyed")!.waiting).toBeGreaterThanOrEqual(LIMIT);
    expect(counts.get("batched")).toMatchObject({ waiting: LIMIT, running: 0, dead: 0 });
    // Two agents with one kind of task, one with arrivals: a page for each at the very most, and some to find the first.
    expect(await few.pages("board_counts")).toBeLessThan(3 * LIMIT + 500);
    await few.board.lag();
    expect(await few.pages("board_unrouted_count")).toBeLessThan(100);
  });

  test("the state of a correlation reads that correlation alone", async () => {
    await using one = await opened();
    const [found] = await one.board.correlations([{ org: "acme", name: "c7000" }]);
    expect(found).toMatchObject({ artifacts: 10, open: 10, done: 0 });
    await waitingCounts(one.database, [{ org: "acme", name: "c7000" }]);
    expect(await one.pages("board_correlations")).toBeLessThan(100);
    expect(await one.pages("board_off_flow")).toBeLessThan(50);
  });
});

test("up to its limit a queue is counted, and a longer one is estimated by the statistics", async () => {
  await using all = await opened(OPEN);
  expect(await all.board.counts()).toEqual([
    { agent: "free", waiting: OPEN / 2 - 7, running: 7, dead: 5 },
    { agent: "keyed", waiting: OPEN / 2, running: 0, dead: 0 },
    { agent: "batched", waiting: 50_000, running: 0, dead: 0 },
  ]);
  await shared.database.query({ text: "ANALYZE runtime.board_queue" });
  await using few = await opened(LIMIT);
  for (const { reader, lag } of await few.board.lag()) {
    if (reader !== "free" && reader !== "keyed") continue;
    expect(Number(lag)).toBeGreaterThan(OPEN * 0.4);
    expect(Number(lag)).toBeLessThan(OPEN * 0.6);
  }
});

test("figures of a long queue and of a large correlation are kept for a second, others are new", async () => {
  await using one = await opened();
  const { clock, board, statements } = one;
  const asked = async (name: string, at: number, ask: () => Promise<unknown>) => {
    statements.delete(name);
    await ask();
    return statements.get(name)?.values?.[at];
  };
  const counts = () => asked("board_counts", 0, () => board.counts());
  const correlations = () =>
    asked("board_correlations", 1, () =>
      board.correlations(["big", "c7000"].map((name) => ({ org: "acme", name }))),
    );
  expect(await counts()).toEqual(["free", "keyed", "batched"]);
  expect(await correlations()).toEqual(["big", "c7000"]);
  expect(await counts()).toBeUndefined();
  expect(await correlations()).toEqual(["c7000"]);
  await clock.advance(5_000);
  expect(await counts()).toEqual(["free", "keyed", "batched"]);
  expect(await correlations()).toEqual(["big", "c7000"]);
});
