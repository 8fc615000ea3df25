import { makeTestArtifact, makeTestTask, range } from "@khala/test-support/conformance/board/support";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { ClaimStore } from "./claim_store.ts";
import { Lanes } from "./lanes.ts";
import { enqueueStatement } from "./statements.ts";

const lanes = new Lanes([{ agent: "a", order: "none", strict: false }]);

let own: TestDatabase;
let clock: ManualClock;
let store: ClaimStore;
beforeAll(async () => {
  own = await testDatabase();
});
beforeEach(async () => {
  await own.database.query({ text: "TRUNCATE runtime.board_tasks" });
  clock = new ManualClock();
  store = new ClaimStore(own.database, clock, { holder: "here", leaseMs: 3_600_000 });
});
afterAll(() => own[Symbol.asyncDispose]());

/** Puts tasks of an org before the agent, and makes them due one after the other. */
async function add(org_id: string, count: number): Promise<void> {
  const tasks = range(1, count).map(() => makeTestTask("a", makeTestArtifact({ org_id })));
  await own.database.query(enqueueStatement(tasks, lanes, 0));
}

/** Claims, and answers of which orgs the tasks are. */
async function claim(most: number): Promise<string[]> {
  const { claims } = await store.claim("a", most);
  return claims.map(({ org }) => org);
}

const count = (orgs: readonly string[]) =>
  Object.fromEntries([...Map.groupBy(orgs, (org) => org)].map(([org, all]) => [org, all.length]));

test.each(["before", "zeta"])(
  "claims the first task of %s next, however many of another org wait",
  async (other) => {
    await add("many", 10_000);
    expect(count(await claim(20))).toEqual({ many: 20 });
    await add(other, 1);
    const next = await claim(20);
    expect(count(next)).toEqual({ many: 19, [other]: 1 });
    // It starts among the first, not behind what else was claimed with it.
    expect(next.indexOf(other)).toBeLessThanOrEqual(1);
    expect(count(await claim(20))).toEqual({ many: 20 });
  },
);

test("a new process finds an org with one task beside one with many", async () => {
  await add("many", 10_000);
  await add("zeta", 1);
  expect(count(await claim(32))).toEqual({ many: 31, zeta: 1 });
});

test("claims one task of each org in turn", async () => {
  for (const org of ["b", "a", "c"]) await add(org, 3);
  const turns: string[] = [];
  for (let i = 0; i < 9; i++) turns.push(...(await claim(1)));
  expect(turns).toEqual(["a", "b", "c", "a", "b", "c", "a", "b", "c"]);
  expect(await claim(1)).toEqual([]);
});

test("shares claims evenly between large orgs, and gives unused shares to the others", async () => {
  for (const org of ["a", "b", "c"]) await add(org, 100);
  await claim(3);
  expect(count(await claim(30))).toEqual({ a: 10, b: 10, c: 10 });
  await add("d", 5);
  expect(count(await claim(90))).toEqual({
    a: expect.any(Number),
    b: expect.any(Number),
    c: expect.any(Number),
    d: 5,
  });
  const rest = count(await claim(1_000));
  expect(Object.values(rest).reduce((sum, each) => sum + each, 0)).toBe(305 - 3 - 30 - 90);
});

test("claims the tasks of an org by due time, and returns the next due time", async () => {
  await add("a", 3);
  await add("b", 1);
  await own.database.query({
    text: "UPDATE runtime.board_tasks SET due_at = now() + interval '1 hour' WHERE org_id = 'b'",
  });
  const { claims, nextDueMs } = await store.claim("a", 10);
  const seqs = claims.map(({ seq }) => seq);
  expect(seqs).toEqual(seqs.toSorted((x, y) => (x < y ? -1 : 1)));
  expect(claims).toHaveLength(3);
  expect(nextDueMs).toBeGreaterThan(3_000_000);
  expect(nextDueMs).toBeLessThanOrEqual(3_600_000);
});
