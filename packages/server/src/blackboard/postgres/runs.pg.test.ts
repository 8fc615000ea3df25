import {
  Heard,
  makeTestArtifact,
  numbered,
  range,
  routeByTags,
} from "@khala/testing/conformance/board/support";
import { testContext } from "@khala/testing/kit/context";
import { buffersOf, recording } from "@khala/testing/postgres/plans";
import { testDatabase } from "@khala/testing/postgres/test_database";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import type { Artifact } from "../model/artifact.ts";
import { openPostgresBoard } from "./open_board.ts";

const WINDOW = 100;

async function opened(database: Database, window = WINDOW) {
  return openPostgresBoard(database, await testContext(), {
    agents: [],
    route: routeByTags,
    routes: true,
    observer: new Heard(),
    wakeups: { send() {} },
    window,
  });
}

/** One call: of how many orgs, how many artifacts, which of them has no new id, and in which order they come. */
const call = fc.record({
  orgs: fc.integer({ min: 1, max: 3 }),
  count: fc.integer({ min: 1, max: 90 }),
  again: fc.boolean(),
  mixed: fc.boolean(),
});

test("however much is published together, in whichever order and versions, lists have the newest of an org first", async () => {
  await using own = await testDatabase();
  const board = await opened(own.database);
  await fc.assert(
    fc.asyncProperty(fc.array(call, { minLength: 1, maxLength: 8 }), async (calls) => {
      const orgs = range(1, 3).map((i) => `org-${i}-${crypto.randomUUID()}`);
      const published: Artifact[] = [];
      for (const { orgs: among, count, again, mixed } of calls) {
        const made = range(1, count).map((i) =>
          makeTestArtifact({ org_id: orgs[i % among]!, type: i % 7 === 0 ? "Rare" : "Draft", payload: i }),
        );
        const older = published.findLast(({ version }) => version === 1);
        if (again && older && !published.some(({ id, version }) => id === older.id && version === 2))
          made.push({ ...older, version: 2 });
        if (mixed) made.sort((a, b) => (Number(a.payload) % 5) - (Number(b.payload) % 5));
        await board.publish(made);
        published.push(...made);
      }
      for (const org of orgs) {
        const all = published.filter(({ org_id }) => org_id === org).reverse();
        for (const limit of [1, 50, WINDOW, WINDOW + 50]) {
          expect(await board.recent({ org, limit })).toEqual(all.slice(0, Math.min(limit, WINDOW)));
          const rare = all.slice(0, WINDOW).filter(({ type }) => type === "Rare");
          expect(await board.recent({ org, type: "Rare", limit })).toEqual(rare.slice(0, limit));
        }
      }
    }),
    { numRuns: 30 },
  );
  await board.stop();
});

test("when the day of a run's first is dropped, the others are still listed", async () => {
  await using own = await testDatabase();
  const board = await opened(own.database);
  const all = numbered([], "k", 3);
  await board.publish(all);
  await own.database.query({
    text: "DELETE FROM runtime.board_artifacts WHERE id = $1",
    values: [all[0]!.id],
  });
  expect(await board.recent({ org: "acme", limit: WINDOW })).toEqual([all[2], all[1]]);
  await board.stop();
});

test.each(["without statistics", "with statistics"])(
  "a list reads no more than it shows, however much there is, %s",
  async (how) => {
    await using own = await testDatabase();
    const { database, statements } = recording(own.database);
    const board = await opened(database, 10_000);
    for (let i = 0; i < 20; i++) await board.publish(numbered([], "k", 500));
    if (how === "with statistics") await database.query({ text: "ANALYZE" });
    const pages = async (query: { type?: string; limit: number }) => {
      expect(await board.recent({ org: "acme", ...query })).toHaveLength(query.limit);
      return await buffersOf(database, statements.get("board_recent")!);
    };
    expect(await pages({ limit: 10 })).toBeLessThan(60);
    expect(await pages({ type: "Draft", limit: 10 })).toBeLessThan(60);
    await board.stop();
  },
);
