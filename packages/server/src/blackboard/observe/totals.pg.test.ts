import { testContext } from "@khala/testing/kit/context";
import { type TestDatabase, testDatabase } from "@khala/testing/postgres/test_database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { openTotals } from "./totals.ts";

let own: TestDatabase;
let context: Context;
beforeAll(async () => {
  own = await testDatabase({ poolSize: 8 });
});
beforeEach(async () => {
  await own.database.query({ text: "TRUNCATE runtime.board_totals, runtime.board_totals_told" });
  context = await testContext();
});
afterAll(() => own[Symbol.asyncDispose]());

const open = (database: Database = own.database) => openTotals(database, context, ["a", "b"]);

test("what servers do is added up, and outlives them", async () => {
  const [one, two] = [open(), open()];
  for (let i = 0; i < 5; i++) one.settled("a", "done");
  two.settled("a", "done");
  two.settled("b", "retry");
  two.settled("b", "dead");
  await Promise.all([one.look(), two.look()]);
  const all = new Map([
    ["a", { done: 6, retried: 0 }],
    ["b", { done: 0, retried: 1 }],
  ]);
  expect(await one.look()).toEqual(all);
  expect(await two.look()).toEqual(all);
  expect(one.owes()).toBe(false);
  const next = open();
  expect(await next.look()).toEqual(all);
  next.settled("a", "done");
  expect((await next.look()).get("a")).toEqual({ done: 7, retried: 0 });
});

test("looks at the same time add everything once", async () => {
  const servers = [open(), open(), open()];
  await Promise.all(
    servers.flatMap((server) =>
      Array.from({ length: 20 }, async (_, i) => {
        server.settled(i % 2 ? "a" : "b", i % 5 ? "done" : "retry");
        await server.look();
      }),
    ),
  );
  const all = await open().look();
  expect([...all.values()].reduce((sum, { done, retried }) => sum + done + retried, 0)).toBe(60);
});

test("an answer that was lost does not add twice, and a statement that failed adds later", async () => {
  const failures: ("before" | "after")[] = ["before", "after"];
  const flaky: Database = {
    ...own.database,
    async transaction(statements) {
      const failure = failures.shift();
      if (failure === "before") throw new Error("away");
      const rows = await own.database.transaction(statements);
      if (failure === "after") throw new Error("the answer was lost");
      return rows;
    },
  };
  const totals = open(flaky);
  totals.settled("a", "done");
  await expect(totals.look()).rejects.toThrow("away");
  totals.settled("a", "done");
  await expect(totals.look()).rejects.toThrow("lost");
  expect(totals.owes()).toBe(true);
  await totals.look();
  expect((await totals.look()).get("a")).toEqual({ done: 2, retried: 0 });
});
