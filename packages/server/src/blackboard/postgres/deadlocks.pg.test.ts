import {
  Heard,
  makeTestArtifact,
  range,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { done, retry, Worker } from "@khala/test-support/conformance/board/worker";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import type { Database, Statement } from "../../database/database.ts";
import { codeOf } from "./board_parts.ts";
import { openPostgresBoard } from "./open_board.ts";

const AGENTS = ["a", "b"];
const KEYS = 30;
const HOPS = 12;

/** Counts the transactions aborted by a deadlock. */
function watched(database: Database) {
  const seen = { deadlocks: 0 };
  const count = (error: unknown): never => {
    if (codeOf(error) === "40P01") seen.deadlocks++;
    throw error;
  };
  const watching: Database = {
    ...database,
    query: <T>(statement: Statement) => database.query<T>(statement).catch(count),
    transaction: (statements) => database.transaction(statements).catch(count),
  };
  return { seen, database: watching };
}

test.for(["40001", "40P01"])("a batch that is rolled back with %s is repeated whole", async (code) => {
  await using store = await testDatabase({ poolSize: 12 });
  const heard = new Heard();
  const attempts = new Map<string, Statement[]>();
  const refusing: Database = {
    ...store.database,
    async query<T>(statement: Statement) {
      const { name = "" } = statement;
      if (name !== "board_put" && name !== "board_settle") return store.database.query<T>(statement);
      const all = [...(attempts.get(name) ?? []), statement];
      attempts.set(name, all);
      if (all.length <= 2) throw Object.assign(new Error("rolled back"), { code });
      return store.database.query<T>(statement);
    },
  };
  const board = await openPostgresBoard(refusing, await testContext(), {
    agents: [rules("a")],
    route: routeByTags,
    observer: heard,
    wakeups: { send() {} },
    pollMs: 50,
  });
  try {
    board.consume(new Worker("a", () => done()));
    const artifacts = range(1, 20).map((payload) => makeTestArtifact({ to: "a", payload }));
    expect(await board.publish(artifacts)).toEqual(artifacts.map(() => "published"));
    await until("all are done", () => heard.settledBy("a").length === 20);
    for (const name of ["board_put", "board_settle"]) {
      const [first, second, third] = attempts.get(name)!.map(({ values }) => values);
      expect([second, third], name).toEqual([first, first]);
    }
  } finally {
    await board.stop();
  }
});

test("servers whose agents publish to each other under the same keys never deadlock", async () => {
  await using store = await testDatabase({ poolSize: 12 });
  const { database, seen } = watched(store.database);
  const context = await testContext();
  await using parts = new AsyncDisposableStack();
  const heard = new Heard();
  const open = async () => {
    const board = await openPostgresBoard(database, context, {
      agents: AGENTS.map((agent) => rules(agent)),
      route: routeByTags,
      observer: heard,
      wakeups: { send() {} },
      pollMs: 50,
    });
    parts.defer(() => board.stop());
    for (const agent of AGENTS)
      board.consume(
        new Worker(agent, ({ attempt, artifacts: [{ payload, depth }] }) => {
          const n = payload as number;
          if (depth >= HOPS) return done();
          if (attempt === 1 && n % 5 === depth % 5) return retry(1);
          // Some go up through the keys while others go down, and each has more to say on its way.
          const keys = range(1, 4).map((step) => (n % 2 === 0 ? n + depth * step : n + KEYS - depth) % KEYS);
          return done(
            ...keys.map((key, i) =>
              makeTestArtifact({
                to: AGENTS[(n + depth + i) % 2]!,
                partition_key: `key ${key}`,
                payload: n,
                depth: i === 0 ? depth + 1 : HOPS,
              }),
            ),
          );
        }),
      );
    return board;
  };
  const boards = [await open(), await open(), await open()];
  const count = 120;
  await Promise.all(
    range(1, count).map((n) =>
      boards[n % 3]!.publish([
        makeTestArtifact({ to: AGENTS[n % 2]!, partition_key: `key ${n % KEYS}`, payload: n }),
      ]),
    ),
  );
  const ended = () => heard.settlements.filter(({ settlement }) => settlement.kind === "done").length;
  await until("all have made all their hops", () => ended() === count * (HOPS * 4 + 1), {
    deadlineMs: 60_000,
  });
  expect(seen.deadlocks).toBe(0);
}, 90_000);
