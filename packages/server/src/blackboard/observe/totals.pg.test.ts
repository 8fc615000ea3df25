import { testContext } from "@khala/test-support/kit/context";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
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
  await own.database.query({
    text: "TRUNCATE runtime.board_totals, runtime.board_outputs, runtime.board_totals_added",
  });
  context = await testContext();
});
afterAll(() => own[Symbol.asyncDispose]());

const open = (database: Database = own.database) => openTotals(database, context, ["a", "b"]);
const DONE = { kind: "done", outputs: [] } as const;
const none = new Map();
const of = (agent: string, org = "acme") => ({ agent, org });

test("adds up all servers' work by org, also after they stop", async () => {
  const [one, two] = [open(), open()];
  for (let i = 0; i < 5; i++) one.settled(of("a"), DONE);
  two.settled(of("a", "zeta"), DONE);
  two.settled(of("b"), { kind: "retry" });
  two.settled(of("b"), { kind: "dead" });
  await Promise.all([one.share(), two.share()]);
  for (const server of [one, two, open()]) {
    const all = await server.share();
    expect([all("a"), all("b")]).toEqual([
      { done: 6, retried: 0, published: none },
      { done: 0, retried: 1, published: none },
    ]);
    const each = await server.share(["acme", "zeta", "nobody"]);
    expect([each("a", "acme"), each("a", "zeta"), each("a", "nobody"), each("b", "zeta")]).toEqual([
      { done: 5, retried: 0, published: none },
      { done: 1, retried: 0, published: none },
      { done: 0, retried: 0, published: none },
      { done: 0, retried: 0, published: none },
    ]);
    expect(server.hasUnsaved()).toBe(false);
  }
});

test("counts the outputs of agents by type and org", async () => {
  const [one, two] = [open(), open()];
  const outputs = (...types: string[]) =>
    ({ kind: "done", outputs: types.map((type) => ({ type })) }) as const;
  one.settled(of("a"), outputs("Draft", "Draft", "Note"));
  two.settled(of("a", "zeta"), outputs("Draft"));
  await Promise.all([one.share(), two.share()]);
  one.settled(of("a"), outputs("Note"));
  const all = await one.share();
  expect(Object.fromEntries(all("a").published)).toEqual({ Draft: 3, Note: 2 });
  expect(all("b").published.size).toBe(0);
  const each = await open().share(["acme", "zeta"]);
  expect(Object.fromEntries(each("a", "acme").published)).toEqual({ Draft: 2, Note: 2 });
  expect(Object.fromEntries(each("a", "zeta").published)).toEqual({ Draft: 1 });
});

test("counts no more types than a payload may make", async () => {
  const server = open();
  const outputs = Array.from({ length: 500 }, (_, i) => ({ type: `T${i}` }));
  server.settled(of("a"), { kind: "done", outputs });
  expect((await server.share())("a").published.size).toBe(100);
});

test("concurrent updates add everything once", async () => {
  const servers = [open(), open(), open()];
  await Promise.all(
    servers.flatMap((server) =>
      Array.from({ length: 20 }, async (_, i) => {
        server.settled(of(i % 2 ? "a" : "b", i % 3 ? "acme" : "zeta"), i % 5 ? DONE : { kind: "retry" });
        await server.share();
      }),
    ),
  );
  const all = await open().share();
  const sum = ["a", "b"]
    .map((agent) => all(agent))
    .reduce((total, { done, retried }) => total + done + retried, 0);
  expect(sum).toBe(60);
});

test("adds once when an answer is lost, and later when a statement fails", async () => {
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
  totals.settled(of("a"), DONE);
  await expect(totals.share()).rejects.toThrow("away");
  totals.settled(of("a"), DONE);
  await expect(totals.share()).rejects.toThrow("lost");
  expect(totals.hasUnsaved()).toBe(true);
  await totals.share();
  expect((await totals.share())("a")).toEqual({ done: 2, retried: 0, published: none });
});
