import { Heard, routeByTags } from "@khala/test-support/conformance/board/support";
import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { buffersOf, recording } from "@khala/test-support/postgres/plans";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { waitingCounts } from "../observe/correlation_state.ts";
import { openPostgresBoard } from "./open_board.ts";

const OPEN = 200_000;
const LIMIT = 2_000;
/** The id of the artifact, and of its task, with a number. */
const ID = "('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid";
const CORRELATION = `CASE WHEN i <= 20000 THEN 'big' ELSE 'c' || i / 10 END`;

/** 200,000 open tasks: half of them may run, the others wait behind a hundred keys. One in ten belongs to one correlation. */
const FILL: readonly [rows: number, insert: string][] = [
  [
    OPEN,
    `INSERT INTO runtime.board_artifacts (id, version, seq, org_id, type, correlation_id, routes, body)
  SELECT ${ID}, 1, i, 'acme', 'Draft', ${CORRELATION}, '{free}', repeat('x', 200)`,
  ],
  [
    OPEN,
    `INSERT INTO runtime.board_tasks (agent, lane, seq, org_id, ready, due_at, claimed_by, held_until, task_id, key,
    artifact_id, artifact_version, created_at)
  SELECT CASE WHEN i <= ${OPEN / 2} THEN 'free' ELSE 'keyed' END, CASE WHEN i > ${OPEN / 2} THEN 'l' || i % 100 ELSE '' END,
    i, 'acme', i <= ${OPEN / 2} + 100, now() + (i - ${OPEN}) * interval '1 ms', CASE WHEN i <= 7 THEN 'another' END,
    CASE WHEN i <= 7 THEN now() + interval '1 hour' END, ${ID}, 'k' || i, ${ID}, 1, 0`,
  ],
  [
    50_000,
    `INSERT INTO runtime.board_dead_letters (agent, id, seq, task_id, org_id, correlation_id, replay_id, body)
  SELECT 'free', ${ID}, i, ${ID}, 'acme', 'd' || i / 10, CASE WHEN i > 5 THEN 'r' END, repeat('y', 500)`,
  ],
];
/** In steps that a statement has time for, however busy the machine is. */
const STEP = 25_000;

let shared: TestDatabase;
beforeAll(async () => {
  shared = await testDatabase();
  for (const [rows, insert] of FILL)
    for (let from = 1; from <= rows; from += STEP)
      await shared.database.query({ text: `${insert} FROM generate_series(${from}, ${from + STEP - 1}) i` });
}, 180_000);
afterAll(() => shared[Symbol.asyncDispose]());

async function opened(countUpTo?: number) {
  const clock = new ManualClock();
  const { database, statements } = recording(shared.database);
  const board = await openPostgresBoard(database, await testContext({ clock }), {
    agents: ["free", "keyed"].map((agent) => ({ agent, order: "key", strict: false })),
    route: routeByTags,
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
    for (const table of ["artifacts", "tasks", "dead_letters"])
      await shared.database.query({ text: `VACUUM ANALYZE runtime.board_${table}` });
  });

  test("counts read no more rows than they count", async () => {
    await using few = await opened(LIMIT);
    const counts = new Map((await few.board.counts()).map((each) => [each.agent, each]));
    expect(counts.get("free")).toMatchObject({ running: 7, dead: 5 });
    expect(counts.get("free")!.waiting).toBeGreaterThanOrEqual(LIMIT - 7);
    expect(counts.get("keyed")!.waiting).toBeGreaterThanOrEqual(LIMIT);
    // Open tasks of two agents, and those that are ready: a page for each at the very most, and some to find the first.
    expect(await few.pages("board_counts")).toBeLessThan(4 * LIMIT + 500);
    const ofOrgs = ["acme", "zeta"].map((org) => ({ agent: "free", org }));
    expect(await few.board.countsOf(ofOrgs)).toMatchObject([
      { running: 7, dead: 5 },
      { waiting: 0, running: 0, dead: 0 },
    ]);
    expect(await few.pages("board_counts_of")).toBeLessThan(2 * LIMIT + 500);
  });

  test("the state of a correlation reads only that correlation", async () => {
    await using one = await opened();
    const [found] = await one.board.correlations([{ org: "acme", name: "c7000" }]);
    expect(found).toMatchObject({ artifacts: 10, open: 10, done: 0 });
    await waitingCounts(one.database, [{ org: "acme", name: "c7000" }]);
    expect(await one.pages("board_correlations")).toBeLessThan(100);
    expect(await one.pages("board_off_flow")).toBeLessThan(50);
  });
});

test("counts a queue up to the limit, and estimates a longer one from statistics", async () => {
  await using all = await opened(OPEN);
  expect(await all.board.counts()).toEqual([
    { agent: "free", waiting: OPEN / 2 - 7, running: 7, dead: 5 },
    { agent: "keyed", waiting: OPEN / 2, running: 0, dead: 0 },
  ]);
  await shared.database.query({ text: "ANALYZE runtime.board_tasks" });
  await using few = await opened(LIMIT);
  for (const { reader, lag } of await few.board.lag()) {
    if (reader !== "free" && reader !== "keyed") continue;
    expect(Number(lag)).toBeGreaterThan(OPEN * 0.4);
    expect(Number(lag)).toBeLessThan(OPEN * 0.6);
  }
});
